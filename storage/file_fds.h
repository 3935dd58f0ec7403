// The descriptors of open files and directories, counted: callers may hold open as many files as
// they like, and a process has only so many descriptors. What they may not take is left for names,
// replicas and the control socket.
//
// No user but root is given more than are left: one alone gets half, and there are some for every other user. The
// limit of a user begins to count at a quarter of all (Crowded); before, a caller need not find out who opens.
//
// It also knows whether reading through them leaves times of access, which a remount changes for those that are open,
// too.
//
// Threads: any.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/file.h"
#include "storage/path_fd.h"

namespace salius {

class FileFds {
 public:
  enum class Kind {
    kFile,
    kDir,
    kNoAtime,  // opened with O_NOATIME by its caller, and stays so
  };

  // Open files may have `limit` descriptors; before it is called, any number.
  void Configure(size_t limit) { limit_.store(limit); }

  static constexpr uid_t kRoot = 0;  // also: nobody asked who opens

  bool Crowded() const { return open_.load() >= limit_.load() / 4; }
  // False when they have them all, or `user` as many as are left. Threads that ask at the same time may all be told
  // true.
  bool HasRoom(uid_t user) const ABSL_LOCKS_EXCLUDED(mu_);
  bool AllTaken() const { return open_.load() >= limit_.load(); }
  size_t limit() const { return limit_.load(); }
  // Waits until a descriptor is given back, for `bound` at most; returns HasRoom().
  bool WaitForRoom(uid_t user, absl::Duration bound) ABSL_LOCKS_EXCLUDED(mu_);

  // `fd`, counted as one of `user`'s until its last share is gone. This outlives the shares.
  SharedFd Share(UniqueFd fd, Kind kind, uid_t user);

  // Whether reading leaves the times of access of files, and of directories; of descriptors that are open and those
  // to come.
  void SetNoAtime(bool files, bool directories);
  // O_NOATIME or 0: what a descriptor of that kind is to be opened with.
  int AtimeFlag(Kind kind) const {
    return kind == Kind::kNoAtime || (kind == Kind::kDir ? no_dir_atime_ : no_atime_).load() ? O_NOATIME : 0;
  }

 private:
  // Gives `fd` the flag that it is to have.
  void Follow(int fd, Kind kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Close(const UniqueFd* shared);
  bool RoomFor(uid_t user) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::atomic<size_t> limit_{SIZE_MAX};
  std::atomic<size_t> open_{0};
  std::atomic<bool> no_atime_{false};
  std::atomic<bool> no_dir_atime_{false};
  mutable absl::Mutex mu_;  // held over fcntl(2), so that no descriptor is closed and another has its number
  struct Shared {
    Kind kind;
    uid_t user;
  };
  std::unordered_map<int, Shared> shared_ ABSL_GUARDED_BY(mu_);
  std::unordered_map<uid_t, size_t> of_user_ ABSL_GUARDED_BY(mu_);  // but root's
};

}  // namespace salius
