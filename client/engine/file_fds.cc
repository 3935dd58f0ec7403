#include "client/engine/file_fds.h"

#include <fcntl.h>

#include <memory>
#include <utility>

namespace salius {

SharedFd FileFds::Share(UniqueFd fd, Kind kind) {
  open_.fetch_add(1);
  const auto* const shared = new const UniqueFd(std::move(fd));
  {
    absl::MutexLock lock(&mu_);
    shared_.emplace(shared->get(), kind);
    Follow(shared->get(), kind);  // it may have been opened before a change
  }
  return SharedFd(shared, [this](const UniqueFd* last) { Close(last); });
}

void FileFds::Close(const UniqueFd* shared) {
  {
    absl::MutexLock lock(&mu_);
    shared_.erase(shared->get());
  }
  delete shared;
  absl::MutexLock lock(&mu_);  // wakes WaitForRoom
  open_.fetch_sub(1);
}

bool FileFds::WaitForRoom(absl::Duration bound) {
  const auto room = [this] { return HasRoom(); };
  absl::MutexLock lock(&mu_);
  return mu_.AwaitWithTimeout(absl::Condition(&room), bound);
}

void FileFds::SetNoAtime(bool files, bool directories) {
  absl::MutexLock lock(&mu_);
  if (no_atime_.exchange(files) == files && no_dir_atime_.load() == directories) return;
  no_dir_atime_.store(directories);
  for (const auto& [fd, kind] : shared_) Follow(fd, kind);
}

void FileFds::Follow(int fd, Kind kind) {
  const int flags = ::fcntl(fd, F_GETFL);
  const int wanted = (flags & ~O_NOATIME) | AtimeFlag(kind);
  if (flags != -1 && wanted != flags) static_cast<void>(::fcntl(fd, F_SETFL, wanted));
}

}  // namespace salius
