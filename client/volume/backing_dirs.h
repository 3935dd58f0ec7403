// The directories of an open volume: the backing directory and what lies in its `.salius`.
//
// Threads: any, after Open. Sync is called by one thread at a time.
#pragma once

#include <sys/statvfs.h>
#include <time.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ext4_watch.h"
#include "storage/backing.h"

namespace salius {

// Descriptors of a volume, in one backing. They outlive what uses them.
struct VolumeFds {
  int root = -1;               // the backing directory, open for reading
  int salius = -1;             // its `.salius`, open for reading
  int file = -1;               // a regular file of the same file system
  Ext4Watch* watch = nullptr;  // notices lost data that no sync reports; may be null
};

class BackingDirs {
 public:
  // Opens the directories, and removes what an earlier session was making or held open: the volume
  // is clean, so nothing needs it. `backing` outlives this.
  static absl::StatusOr<BackingDirs> Open(Backing& backing, const VolumeFds& fds);

  Backing& backing() const { return *backing_; }
  int root_fd() const { return fds_.root; }
  int tmp_fd() const { return tmp_.get(); }    // objects being made, by id
  int open_fd() const { return open_.get(); }  // hidden links of nameless files, by id

  // Removes an object that is not needed from tmp_fd() or open_fd().
  void RemoveLeftover(int dirfd, const std::string& name) const;

  // Makes every effect so far durable. An error is final: the kernel reports it once.
  absl::Status Sync() const;
  // Returns Ext4Watch::Check(); OK without a watch. To be called after every other sync on which
  // records depend.
  absl::Status CheckSynced() const;

  // Returns whether files keep the nanoseconds of their times (ext4 with small inodes does not).
  bool KeepsNanoseconds() const;
  // Lets Now() be exact. To be called last: there may be no inode left for it.
  void OpenClock();
  // Returns the time that the file system would give a file now; without a clock the kernel's.
  timespec Now() const;

 private:
  BackingDirs(Backing& backing, const VolumeFds& fds) : backing_(&backing), fds_(fds) {}

  Backing* backing_;  // never null
  VolumeFds fds_;
  // Opened first, so that syncfs on it reports every write-back error since. Each is reported once,
  // so only Sync() calls it.
  BackingFd sync_;
  BackingFd tmp_, open_;
  BackingFd clock_;  // without a name; stamped to learn the file system's time. May be missing
};

}  // namespace salius
