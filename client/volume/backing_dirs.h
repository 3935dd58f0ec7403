// The directories of an open volume: the backing directory and what lies in its `.salius`.
//
// Threads: any, after Open. Sync is called by one thread at a time.
#pragma once

#include <sys/statvfs.h>
#include <time.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"
#include "storage/volume_config.h"

namespace salius {

class BackingDirs {
 public:
  // Opens the directories, and removes what an earlier session was making or held open: the volume
  // is clean, so nothing needs it.
  static absl::StatusOr<BackingDirs> Open(VolumeDir volume);

  const VolumeDir& volume() const { return volume_; }
  int root_fd() const { return volume_.root_fd; }
  int tmp_fd() const { return tmp_.get(); }    // objects being made, by id
  int open_fd() const { return open_.get(); }  // hidden links of nameless files, by id

  // Removes an object that is not needed from tmp_fd() or open_fd().
  static void RemoveLeftover(int dirfd, const std::string& name);

  // Makes every effect so far durable. An error is final: the kernel reports it once.
  absl::Status Sync() const;
  // Returns VolumeDir::CheckSynced().
  absl::Status CheckSynced() const { return volume_.CheckSynced(); }

  // Lets Now() be exact. To be called last: there may be no inode left for it.
  void OpenClock();
  // Returns the time that the file system would give a file now; without a clock the kernel's.
  timespec Now() const;

 private:
  explicit BackingDirs(VolumeDir volume) : volume_(std::move(volume)) {}

  VolumeDir volume_;
  // Opened first, so that syncfs on it reports every write-back error since. Each is reported once,
  // so only Sync() calls it.
  UniqueFd sync_;
  UniqueFd tmp_, open_;
  UniqueFd clock_;  // without a name; stamped to learn the file system's time. May be missing
};

}  // namespace salius
