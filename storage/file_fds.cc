#include "storage/file_fds.h"

#include <memory>
#include <utility>

#include "common/clock.h"
#include "common/deadline.h"

namespace salius {

bool FileFds::RoomFor(uid_t user) const {
  const size_t limit = limit_.load(), open = open_.load();
  if (open >= limit) return false;
  if (user == kRoot) return true;
  const auto held = of_user_.find(user);
  return held == of_user_.end() || held->second < limit - open;
}

bool FileFds::HasRoom(uid_t user) const {
  if (!Crowded()) return true;
  absl::MutexLock lock(&mu_);
  return RoomFor(user);
}

SharedFd FileFds::Share(BackingFd fd, Kind kind, uid_t user) {
  open_.fetch_add(1);
  const auto* const shared = new const BackingFd(std::move(fd));
  {
    absl::MutexLock lock(&mu_);
    shared_.emplace(shared->get(), Shared{kind, user});
    if (user != kRoot) ++of_user_[user];
    Follow(shared->get(), kind);  // it may have been opened before a change
  }
  return SharedFd(shared, [this](const BackingFd* last) { Close(last); });
}

void FileFds::Close(const BackingFd* shared) {
  {
    absl::MutexLock lock(&mu_);
    const auto entry = shared_.find(shared->get());
    const auto of_user = of_user_.find(entry->second.user);
    if (of_user != of_user_.end() && --of_user->second == 0) of_user_.erase(of_user);
    shared_.erase(entry);
    ++closing_;
  }
  delete shared;
  absl::MutexLock lock(&mu_);
  --closing_;
  open_.fetch_sub(1);
  closed_.SignalAll();
}

bool FileFds::WaitForRoom(uid_t user, std::chrono::nanoseconds brief,
                          std::chrono::nanoseconds bound) {
  const Deadline first = Deadline::After(SystemClock(), brief);
  const Deadline last = Deadline::After(SystemClock(), bound);
  absl::MutexLock lock(&mu_);
  while (!RoomFor(user)) {
    int64_t left_ns = first.RemainingNs(SystemClock());
    if (left_ns == 0 && closing_ > 0) left_ns = last.RemainingNs(SystemClock());
    if (left_ns == 0) return false;
    closed_.WaitFor(&mu_, left_ns);
  }
  return true;
}

void FileFds::SetNoAtime(bool files, bool directories) {
  absl::MutexLock lock(&mu_);
  if (no_atime_.exchange(files) == files && no_dir_atime_.load() == directories) return;
  no_dir_atime_.store(directories);
  for (const auto& [fd, shared] : shared_) Follow(fd, shared.kind);
}

void FileFds::Follow(int fd, Kind kind) {
  backing_.SetNoAtime(fd, AtimeFlag(kind) != 0);
}

}  // namespace salius
