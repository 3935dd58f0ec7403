// Compares what two files show: stat(2), by relations where the values cannot be equal.
//
// - Mode, owner, links, device and size are equal; of directories the size is the file system's own
//   matter.
// - The same object of one side is the same object of the other: a pair of inode numbers holds as
//   long as the object lives. An object is known by its file handle on the bare side, which is not
//   used again as an inode number is.
// - A time outside the run was set: it is equal. Of the other times, each must have changed since
//   the last look on both sides or on neither. A ctime never goes back, nothing is in the future.
// - Blocks are compared loosely: a file without any on one side has few on the other.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "tests/differential/side.h"

namespace salius::differential {

// Something that has a stat on both sides: a path, or an open file.
struct Subject {
  int mount_fd;
  int bare_fd;
  std::string path;  // empty: the open file itself
};

// How the times of a run are compared that no caller set.
enum class TimeRule : uint8_t {
  kExact,
  // The mount's ctime may change once more without an operation, and go back by a step of the
  // kernel's clock. Reasons: docs/mount-internals.md, "Times with names=async"; docs/mount.md, of
  // files that had no name for a time.
  kLateCtime,
  kNone,
};

class Looks {
 public:
  // `since`: when the run began, in seconds since 1970.
  Looks(TimeRule rule, int64_t since);

  // Notes that an operation begins, in the mount first. `number`: a difference names the operation
  // of the last look by it.
  void NoteOperation(uint64_t number);
  // Returns how the two differ; nothing if they do not. `force`: the mount must ask its daemon.
  std::optional<std::string> Compare(const Subject& subject, bool force);
  // Compares two stats that were made at the same time; `handle` knows the bare object.
  std::optional<std::string> CompareStats(const struct statx& mount, const struct statx& bare,
                                          const std::string& handle);
  // Compares names and values of all xattrs of the file at a path.
  static std::optional<std::string> CompareXattrs(const Subject& subject);
  // Return how often times were not compared exactly, for a report: of changes within one step of
  // the clock, and of ctimes that changed late.
  uint64_t unclear_times() const { return unclear_times_; }
  uint64_t late_ctimes() const { return late_ctimes_; }

 private:
  struct Times {
    statx_timestamp modified;
    statx_timestamp changed;
    statx_timestamp accessed;
  };
  struct Seen {
    uint64_t mount_inode;
    Times mount;
    Times bare;
    uint64_t number;
  };

  std::optional<std::string> CompareTimes(const Times& mount, const Times& bare,
                                          const Seen* before);
  // Compares one time. The times before are null at the first look.
  std::optional<std::string> CompareTime(statx_timestamp Times::*which, const Times& mount,
                                         const Times& bare, const Seen* before);

  // Returns when the operation began in the mount that gave the bare side this time, in nanoseconds
  // since 1970. It may be that of an operation before. Nothing: that was too long ago.
  std::optional<int64_t> BeganBefore(int64_t bare_ns) const;

  const TimeRule rule_;
  const int64_t start_ns_;
  uint64_t unclear_times_ = 0;
  uint64_t late_ctimes_ = 0;
  uint64_t number_ = 0;
  std::deque<int64_t> began_ns_;                // of the last operations
  std::unordered_map<std::string, Seen> seen_;  // by handle on the bare side
};

// Returns the handle of the bare side's object; empty with errno.
std::string HandleOf(int fd, const std::string& path);
// Returns errno, or 0.
int StatOf(int fd, const std::string& path, bool force, struct statx* st);

}  // namespace salius::differential
