// Calls that change the name or the attributes of the file at a path.
#pragma once

#include <fcntl.h>

#include "client/preload/library.h"
#include "client/preload/look.h"

namespace salius::preload {

// A path as a system call gets it.
struct Place {
  int directory = AT_FDCWD;
  const char* path = nullptr;  // empty: the file behind `directory`
  int link = 0;                // AT_SYMLINK_NOFOLLOW: a link at the path's end is not followed
};

// Returns the place of a call that follows a link unless its `flags` have AT_SYMLINK_NOFOLLOW.
inline Place PlaceOf(int directory, const char* path, int flags) {
  return {directory, path, flags & AT_SYMLINK_NOFOLLOW};
}

// Makes `call`, which changes the file at `before` and leaves it at `after`. When it returns 0, the
// file is uncovered. Both places are looked at, since another thread may rename the file, or a
// directory above it, during the call. No file is opened: that needs a right that the call does not
// need, and an open and a close are seen by others (a FIFO, a device, record locks).
// Async-signal-safe. Returns what the call returns, with its errno.
template <typename Call>
auto ChangeNamed(const Place& before, const Place& after, direct::Reason reason, Call call) {
  if (!library.logs()) return call();
  Seen first, last;
  const bool had = LookAt(before.directory, before.path, &first, before.link);
  const auto result = call();
  if (result != 0) return result;
  const bool has = LookAt(after.directory, after.path, &last, after.link);
  if (had) library.UncoverSeen(first, reason);
  if (has && !(had && first.device == last.device && first.inode == last.inode)) {
    library.UncoverSeen(last, reason);
  }
  return result;
}

template <typename Call>
auto ChangeAttributes(const Place& place, Call call) {
  return ChangeNamed(place, place, direct::Reason::kAttributes, call);
}

}  // namespace salius::preload
