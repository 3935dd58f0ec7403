// Counts the descriptors of open files and directories. Callers may open any number of files, and a
// process has a limited number of descriptors. Some are reserved for names, replicas and the
// control socket.
//
// No user but root gets more descriptors than are left: one user alone gets half of them, and every
// other user can still get some. A user's share counts only when a quarter of all is taken
// (Crowded); before that a caller need not find out the user.
//
// It also keeps whether reads through these descriptors change times of access. A remount changes
// that for open ones too.
//
// Threads: any.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/monotonic_cond.h"
#include "storage/backing.h"
#include "storage/path_fd.h"

namespace salius {

class FileFds {
 public:
  enum class Kind {
    kFile,
    kDir,
    kNoAtime,  // opened with O_NOATIME by its caller, and stays so
  };

  // `backing` has the files, and outlives this object.
  explicit FileFds(Backing& backing) : backing_(backing) {}
  FileFds(const FileFds&) = delete;
  FileFds& operator=(const FileFds&) = delete;

  // Lets open files have `limit` descriptors; before the call, any number.
  void Configure(size_t limit) { limit_.store(limit); }

  static constexpr uid_t kRoot = 0;  // also: the user was not looked up

  bool Crowded() const { return open_.load() >= limit_.load() / 4; }
  // Returns false when all descriptors are taken, or when `user` has as many as are left. Threads
  // that ask at the same time may all get true.
  bool HasRoom(uid_t user) const ABSL_LOCKS_EXCLUDED(mu_);
  bool AllTaken() const { return open_.load() >= limit_.load(); }
  size_t limit() const { return limit_.load(); }
  // Waits until a descriptor is given back: for `brief`, and while one is being closed, which may
  // wait for the disk, for `bound` in all. Returns HasRoom().
  bool WaitForRoom(uid_t user, std::chrono::nanoseconds brief, std::chrono::nanoseconds bound)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Returns `fd` as a share, counted for `user` until its last share is gone. This object outlives
  // the shares.
  SharedFd Share(BackingFd fd, Kind kind, uid_t user);

  // Sets whether reads keep the times of access of files, and of directories: for open descriptors
  // and for later ones.
  void SetNoAtime(bool files, bool directories);
  // Returns the flag with which a descriptor of that kind is to be opened: O_NOATIME or 0.
  int AtimeFlag(Kind kind) const {
    return kind == Kind::kNoAtime || (kind == Kind::kDir ? no_dir_atime_ : no_atime_).load() ? O_NOATIME : 0;
  }

 private:
  // Sets or clears O_NOATIME of `fd`, as its kind wants it.
  void Follow(int fd, Kind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Close(const BackingFd* shared);
  bool RoomFor(uid_t user) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Backing& backing_;
  std::atomic<size_t> limit_{SIZE_MAX};
  std::atomic<size_t> open_{0};
  std::atomic<bool> no_atime_{false};
  std::atomic<bool> no_dir_atime_{false};
  // Held over fcntl(2), so that no descriptor is closed and its number given to another meanwhile.
  mutable absl::Mutex mu_;
  MonotonicCond closed_;  // a descriptor was given back
  size_t closing_ ABSL_GUARDED_BY(mu_) = 0;  // descriptors that are being closed
  struct Shared {
    Kind kind;
    uid_t user;
  };
  std::unordered_map<int, Shared> shared_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<uid_t, size_t> of_user_ ABSL_GUARDED_BY(mu_);  // without root
};

}  // namespace salius
