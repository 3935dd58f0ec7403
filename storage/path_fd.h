// The O_PATH descriptor of a node, closed while it is not needed. The kernel may keep millions of
// names in its cache, each of them a node here, and a process has far fewer descriptors. So only
// the most recently used nodes hold one, and the others are opened again by their file handle.
//
// - A descriptor in use is never closed: get() hands out a share of it.
// - A descriptor whose file cannot be found again by a handle is kept for good: on file systems
//   without handles, on another mounted file system, and when the caller says that the last name
//   goes away (Keep).
//
// Threads: any. Locks: the cache's, then a descriptor's own; both are leaves for callers. The
// cache's is held over name_to_handle_at(2) and close(2) of an O_PATH descriptor, which wait for
// nothing.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/file.h"
#include "storage/backing.h"
#include "storage/compact_handle.h"

namespace salius {

using SharedFd = std::shared_ptr<const BackingFd>;

class PathFd;

class PathFdCache {
 public:
  // `backing` has the files, and outlives this object.
  explicit PathFdCache(Backing& backing) : backing_(backing) {}
  PathFdCache(const PathFdCache&) = delete;
  PathFdCache& operator=(const PathFdCache&) = delete;

  // Limits the open descriptors to `limit`, unless more must be open. `mount_fd` lies on the file
  // system `dev` and is not O_PATH; it outlives the cache. Before Configure nothing is ever closed.
  void Configure(int mount_fd, dev_t dev, size_t limit);

  // Returns the number of open descriptors that may be closed.
  size_t open() const;
  size_t limit() const;
  // Returns whether a file on file system `dev` can be opened by its handle.
  bool CanReopen(dev_t dev) const { return mount_fd_.load() >= 0 && dev == dev_.load(); }

 private:
  friend class PathFd;
  void Enter(PathFd& fd);
  void Leave(PathFd& fd);
  // Closes descriptors that were not used lately, until the limit is kept.
  void Shrink() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Backing& backing_;
  mutable absl::Mutex mutex_;
  std::atomic<int> mount_fd_{-1};
  std::atomic<dev_t> dev_{0};
  size_t limit_ ABSL_GUARDED_BY(mutex_) = SIZE_MAX;
  std::list<PathFd*> lru_ ABSL_GUARDED_BY(mutex_);  // open ones; the first is looked at first
  size_t kept_ ABSL_GUARDED_BY(mutex_) = 0;         // number of those that must stay open
};

class PathFd {
 public:
  // A share of the descriptor; converts to it. It is -1, on which every call gives EBADF, when the
  // file could not be opened again.
  class Use {
   public:
    explicit Use(SharedFd fd) : fd_(std::move(fd)) {}
    operator int() const { return fd_ == nullptr ? -1 : fd_->get(); }  // NOLINT: is a descriptor

   private:
    friend class PathFd;
    SharedFd fd_;
  };

  // Takes `fd`, which is O_PATH on file system `dev`. `cache` outlives this object.
  PathFd(BackingFd fd, dev_t dev, PathFdCache& cache);
  // Begins without a descriptor: the file on file system `dev` is opened by `handle` when it is
  // used. `dev` must be that of the cache (PathFdCache::CanReopen).
  PathFd(const FileHandle& handle, dev_t dev, PathFdCache& cache);
  ~PathFd();
  PathFd(const PathFd&) = delete;
  PathFd& operator=(const PathFd&) = delete;

  dev_t dev() const { return dev_; }
  Use get() const;
  // Takes another descriptor of the same file, opened by its name just now. It is better than one
  // by handle, because the kernel knows the file's path by it.
  void Offer(BackingFd fd) const;
  // Keeps a descriptor open from now on: its own, or when it has none `use`, a share from get().
  void Keep(const Use& use) const;

 private:
  friend class PathFdCache;
  // Closes the descriptor if it is idle and its file can be found again. Sets `*keep` if that must
  // not be tried again.
  bool TryClose(bool* keep) const;
  SharedFd Reopen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Where a descriptor is in the cache's accounts.
  enum class Place : uint8_t { kUnlisted, kListed, kKept };

  // There is one object for each inode that the kernel caches: the order of the fields saves room.
  PathFdCache& cache_;
  mutable absl::Mutex mutex_;
  mutable SharedFd fd_ ABSL_GUARDED_BY(mutex_);
  mutable CompactHandle handle_ ABSL_GUARDED_BY(mutex_);
  // The position in the cache's list, for kListed; guarded by the cache's lock, as `place_`.
  mutable std::list<PathFd*>::iterator position_;
  const uint32_t dev_;  // Linux's device numbers have 32 bits
  mutable std::atomic<bool> used_{true};
  mutable bool by_handle_ ABSL_GUARDED_BY(mutex_) = false;
  mutable bool keep_ ABSL_GUARDED_BY(mutex_) = false;
  mutable Place place_ = Place::kUnlisted;
};

static_assert(sizeof(PathFd) <= 64);

}  // namespace salius
