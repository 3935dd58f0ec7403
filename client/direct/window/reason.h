// The reasons why a file of a direct volume is uncovered: the log cannot vouch for all that is in
// its page cache, so that its next sync is a real fsync(2). Each is counted under its name, in
// `salius status`, in the metrics and in the summary of `salius-run --stats`.
//
// The numbers are positions in shared memory (client/direct/window/layout.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace salius::direct {

enum class Reason : uint8_t {
  kNew = 0,     // first sync of the file in this session: its name or its id may not be on disk
  kFull,        // no room in the log (ring, slots, deadline k*tau)
  kBulk,        // more unsynced bytes than the bulk limit: its data goes past the log
  kPosition,    // where the bytes of a write went could not be proven
  kAllocate,    // fallocate(2), truncate(2) by a path, and requests of ioctl(2)
  kCopy,        // copy_file_range(2), sendfile(2), splice(2), dprintf(3) into the file
  kAio,         // asynchronous writes
  kMap,         // a shared writable map: uncovered until the session ends
  kStdio,       // a stdio stream open for writing: likewise
  kForeign,     // opened before the library was loaded, inherited, or received over a socket
  kDeadOwner,   // a process was killed while it held the file's stripe lock
  kSignal,      // a write from a signal handler that interrupted the library
  kName,        // rename(2), link(2): the name may not be on disk
  kAttributes,  // mode, owner, times, extended attributes
  kFailed,      // a write or a system call of the library failed half-way
  kNoId,        // no id to log under: until an open of the file can read its id or give it one
};
inline constexpr size_t kReasons = static_cast<size_t>(Reason::kNoId) + 1;

// Returns the reason's name: a word for status, metrics and summaries.
constexpr const char* ReasonName(Reason reason) {
  constexpr const char* kNames[kReasons] = {
      "new",   "full",    "bulk",       "position", "allocate", "copy",       "aio",   "map",
      "stdio", "foreign", "dead_owner", "signal",   "name",     "attributes", "failed", "no_id"};
  return static_cast<size_t>(reason) < kReasons ? kNames[static_cast<size_t>(reason)] : "unknown";
}

}  // namespace salius::direct
