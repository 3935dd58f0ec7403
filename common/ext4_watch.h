// What ext4 says about data that does not reach the disk, where fsync(2) does not: its counters in
// /sys/fs/ext4 and the kernel's log.
#ifndef SALIUS_COMMON_EXT4_WATCH_H_
#define SALIUS_COMMON_EXT4_WATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/file.h"

namespace salius {

// How often the kernel has complained of the ext4 file system that `fd` is on: errors, warnings
// (one for all data that could not be written back) and messages together. It does not fall while
// the file system stays mounted. UNIMPLEMENTED for others, where /sys is missing, and before
// Linux 5.9.
absl::StatusOr<uint64_t> Ext4Complaints(int fd);

// How many errors ext4 has found in itself since e2fsck(8) last ran, on the file system that `fd`
// is on. UNIMPLEMENTED as above.
absl::StatusOr<uint64_t> Ext4Errors(int fd);

// What a record of the kernel's log ("level,number,microseconds,flags;text") says of the ext4 on
// `device`; nothing when it is not its.
struct Ext4Message {
  bool severe = false;  // "critical" or worse: it may have cost data
  std::string text;
};
std::optional<Ext4Message> ParseExt4Message(std::string_view record, std::string_view device);

// Hears of data that ext4 has thrown away. Blocks for new data are allocated when it is written
// back; when that fails because a block of ext4's own is damaged or cannot be read, the data is
// dropped, and neither syncfs(2) nor fsync(2) returns an error, then or later (seen with
// Linux 6.18: an unreadable block whatever the mount option `errors`, a damaged one with
// errors=continue).
//
// Thread-safe. Blocks for as long as reading a few bytes from the kernel takes, and when something
// is counted that is not in the log yet, up to a second.
class Ext4Watch {
 public:
  // Watches the file system that `fd` is on, from now on. Other file systems report such errors
  // through fsync, and an ext4 whose counters are not in /sys cannot be watched (the log says so):
  // then Check is always OK. Where /dev/kmsg cannot be read (the log says so too) every message of
  // ext4 is taken for a failure.
  explicit Ext4Watch(int fd);

  // OK: what a sync that was over before this call has covered is on the disk, if the sync said so
  // too. INTERNAL, then and from then on: ext4 found itself damaged, or said in the kernel's log
  // that it failed, or said something that is not to be found there; says what, and what to do.
  absl::Status Check() ABSL_LOCKS_EXCLUDED(mutex_);
  // To be called every few seconds: takes what is new in the kernel's log before that is full.
  void KeepUp() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Takes what is new in the kernel's log.
  void ReadLog() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::string device_;          // as ext4 calls it; empty: nothing is watched
  UniqueFd log_;                // /dev/kmsg, read up to now; invalid where it cannot be read
  UniqueFd errors_, messages_;  // the counters
  uint64_t errors_before_ = 0, messages_before_ = 0;

  absl::Mutex mutex_;
  uint64_t lines_ ABSL_GUARDED_BY(mutex_) = 0;  // of ext4, of this device, in the log
  std::string severe_ ABSL_GUARDED_BY(mutex_);  // the first that says that something failed
  absl::Status verdict_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace salius

#endif  // SALIUS_COMMON_EXT4_WATCH_H_
