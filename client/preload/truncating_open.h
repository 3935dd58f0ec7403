// open(2) with O_TRUNC of a file that the volume knows.
//
// The kernel would cut the file before the library knows which file it is, without its lock: a
// process that is killed then leaves a covered file, and its older records are replayed into it.
// So such a file is opened without O_TRUNC, and then cut as by ftruncate(2), which is logged. Where
// the C library opens, or the descriptor only reads, it is cut by the kernel between BeginUnseen and
// EndUnseen.
#pragma once

#include <fcntl.h>

#include <cerrno>

#include "client/preload/library.h"
#include "client/preload/look.h"

namespace salius::preload {

// Returns the file that an open of this path with `flags` cuts, if the volume knows it; else an
// untracked one. errno stays. Async-signal-safe.
inline direct::File CutBy(int directory, const char* path, int flags) {
  Seen seen;
  constexpr int kCuts = O_TRUNC | O_PATH;
  if ((flags & kCuts) != O_TRUNC || !library.logs() || path == nullptr) return {};
  return LookAt(directory, path, &seen, 0) ? library.Known(seen) : direct::File{};
}

// Opens by `open`, with what is to be done at once afterwards. The kernel cuts the file. Returns
// what `open` returns, with its errno.
template <typename Open>
auto OpenUnseen(int directory, const char* path, int flags, Open open) {
  const direct::File file = CutBy(directory, path, flags);
  if (!file.tracked()) return open();
  const int before = errno;
  library.files().BeginUnseen(file, direct::Reason::kPosition);
  errno = before;
  auto result = open();
  const int after = errno;
  library.files().EndUnseen(file, direct::Reason::kPosition);
  errno = after;
  return result;
}

}  // namespace salius::preload
