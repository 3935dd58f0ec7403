#include "storage/path_fd.h"

#include <fcntl.h>

#include <utility>

#include "common/check.h"
#include "common/log.h"

namespace salius {

void PathFdCache::Configure(int mount_fd, dev_t dev, size_t limit) {
  absl::MutexLock lock(&mutex_);
  dev_.store(dev);
  mount_fd_.store(mount_fd);
  limit_ = limit;
}

size_t PathFdCache::open() const {
  absl::MutexLock lock(&mutex_);
  return lru_.size();
}

size_t PathFdCache::limit() const {
  absl::MutexLock lock(&mutex_);
  return limit_;
}

void PathFdCache::Enter(PathFd& fd) {
  absl::MutexLock lock(&mutex_);
  if (fd.place_ != PathFd::Place::kUnlisted) return;
  fd.position_ = lru_.insert(lru_.end(), &fd);
  fd.place_ = PathFd::Place::kListed;
  Shrink();
}

void PathFdCache::Leave(PathFd& fd) {
  absl::MutexLock lock(&mutex_);
  if (fd.place_ == PathFd::Place::kListed) lru_.erase(fd.position_);
  if (fd.place_ == PathFd::Place::kKept) --kept_;
  fd.place_ = PathFd::Place::kUnlisted;
}

void PathFdCache::Shrink() {
  // Each descriptor is looked at twice at most: the first look clears its mark of use.
  size_t looks = 2 * lru_.size();
  for (; !lru_.empty() && lru_.size() + kept_ > limit_ && looks > 0; --looks) {
    PathFd& fd = *lru_.front();
    bool keep = false;
    if (fd.used_.exchange(false) || (!fd.TryClose(&keep) && !keep)) {
      lru_.splice(lru_.end(), lru_, lru_.begin());
    } else {
      lru_.pop_front();
      if (keep) ++kept_;
      fd.place_ = keep ? PathFd::Place::kKept : PathFd::Place::kUnlisted;
    }
  }
}

PathFd::PathFd(BackingFd fd, dev_t dev, PathFdCache& cache)
    : cache_(cache),
      fd_(std::make_shared<const BackingFd>(std::move(fd))),
      dev_(static_cast<uint32_t>(dev)) {
  SALIUS_CHECK(dev_ == dev, "a device number of more than 32 bits");
  cache_.Enter(*this);
}

PathFd::PathFd(const FileHandle& handle, dev_t dev, PathFdCache& cache)
    : cache_(cache), handle_(handle), dev_(static_cast<uint32_t>(dev)) {
  SALIUS_CHECK(cache.CanReopen(dev), "a file that cannot be opened again");
}

PathFd::~PathFd() { cache_.Leave(*this); }

PathFd::Use PathFd::get() const {
  used_.store(true, std::memory_order_relaxed);
  SharedFd fd;
  {
    absl::MutexLock lock(&mutex_);
    if (fd_ != nullptr) return Use(fd_);
    fd = fd_ = Reopen();
  }
  if (fd != nullptr) cache_.Enter(const_cast<PathFd&>(*this));
  return Use(std::move(fd));
}

SharedFd PathFd::Reopen() const {
  absl::StatusOr<BackingFd> fd = cache_.backing_.OpenByHandle(
      cache_.mount_fd_.load(), handle_.ToHandle(), O_PATH | O_NOFOLLOW);
  if (!fd.ok()) {
    SLOG_ERROR("a file in use cannot be opened again: {}", fd.status().ToString());
    return nullptr;
  }
  by_handle_ = true;
  return std::make_shared<const BackingFd>(*std::move(fd));
}

void PathFd::Offer(BackingFd fd) const {
  bool closed = false;
  {
    absl::MutexLock lock(&mutex_);
    closed = fd_ == nullptr;
    if (!closed && !by_handle_) return;
    fd_ = std::make_shared<const BackingFd>(std::move(fd));
    by_handle_ = false;
  }
  used_.store(true, std::memory_order_relaxed);
  if (closed) cache_.Enter(const_cast<PathFd&>(*this));
}

void PathFd::Keep(const Use& use) const {
  SALIUS_CHECK(use.fd_ != nullptr);
  bool closed = false;
  {
    absl::MutexLock lock(&mutex_);
    keep_ = true;
    // The descriptor may be an offered one, of which `use` is no share, and may have been closed.
    closed = fd_ == nullptr;
    if (closed) fd_ = use.fd_;
  }
  if (closed) cache_.Enter(const_cast<PathFd&>(*this));
}

bool PathFd::TryClose(bool* keep) const {
  absl::MutexLock lock(&mutex_);
  *keep = keep_ || dev_ != cache_.dev_.load();
  if (*keep || fd_ == nullptr) return !*keep;
  if (fd_.use_count() > 1) return false;
  if (handle_.empty()) {
    absl::StatusOr<FileHandle> handle = cache_.backing_.HandleOf(fd_->get());
    if (!handle.ok() || !CompactHandle::Holds(*handle)) {
      *keep = true;
      return false;
    }
    handle_ = CompactHandle(*handle);
  }
  fd_.reset();
  return true;
}

}  // namespace salius
