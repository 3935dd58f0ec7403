// Reads the signs of data that ext4 did not bring to the disk, where fsync(2) reports nothing: its
// counters in /sys/fs/ext4 and the kernel's log.
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

// Returns how often the kernel has complained of the ext4 file system that `fd` is on. It counts
// errors, warnings (one for all data that could not be written back) and messages together. It does
// not fall while the file system stays mounted. UNIMPLEMENTED for other file systems, where /sys is
// missing, and before Linux 5.9.
absl::StatusOr<uint64_t> Ext4Complaints(int fd);

// Returns how many errors ext4 has found in itself since e2fsck(8) last ran, on the file system
// that `fd` is on. UNIMPLEMENTED as above.
absl::StatusOr<uint64_t> Ext4Errors(int fd);

// A message of the ext4 on `device`, from a record of the kernel's log
// ("level,number,microseconds,flags;text"). ParseExt4Message returns nothing for other records.
struct Ext4Message {
  bool severe = false;  // "critical" or worse: it may have cost data
  std::string text;
};
std::optional<Ext4Message> ParseExt4Message(std::string_view record, std::string_view device);

// Detects data that ext4 has thrown away. ext4 allocates blocks for new data when it writes them
// back. That fails when a block of ext4's own is damaged or cannot be read. Then the data is
// dropped, and neither syncfs(2) nor fsync(2) returns an error, then or later. (Seen with
// Linux 6.18: an unreadable block whatever the mount option `errors`, a damaged one with
// errors=continue.)
//
// Thread-safe. A call blocks while it reads a few bytes from the kernel. When something is counted
// that is not in the log yet, it blocks up to a second.
class Ext4Watch {
 public:
  // Watches the file system that `fd` is on, from now on. Check is always OK for other file
  // systems, which report such errors through fsync. It is always OK too, with a line in the log,
  // for an ext4 whose counters are not in /sys. Where /dev/kmsg cannot be read (the log says so
  // too) every message of ext4 counts as a failure.
  explicit Ext4Watch(int fd);

  // Checks the syncs that ended before this call. On OK the data that they covered are on the disk,
  // if they returned success too.
  // INTERNAL, then and from then on: ext4 found itself damaged, or said in the kernel's log that it
  // failed, or counted a message that the log does not have. The error names the fault and the
  // remedy.
  absl::Status Check() ABSL_LOCKS_EXCLUDED(mutex_);
  // Reads the new part of the kernel's log before that is full; call it every few seconds.
  void KeepUp() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Reads the new part of the kernel's log.
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
