#include "storage/quota.h"

#include <chrono>

#include "common/clock.h"
#include "common/deadline.h"

namespace salius {
namespace {

// The most owners whose figures are kept; beyond it figures that were not asked for are dropped.
constexpr size_t kMostOwners = 4096;

// The distance from a limit that is far: XFS reserves some hundred KiB for a change at most.
constexpr uint64_t kFarBytes = uint64_t{1} << 20;
// The bytes that a change of a name or an attribute may need, besides those that XFS gives back.
constexpr uint64_t kChangeBytes = 4096;

int64_t MonotonicMillis() { return SystemClock().MonotonicNanos() / 1'000'000; }

bool Within(uint64_t used, uint64_t more, uint64_t hard, uint64_t soft, bool grace_over) {
  if (more == 0) return true;
  if (hard != 0 && used + more > hard) return false;
  return soft == 0 || !grace_over || used + more <= soft;
}

bool BytesWithin(const fs::QuotaUse& use, uint64_t bytes) {
  return Within(use.bytes_used, bytes, use.bytes_hard, use.bytes_soft, use.bytes_grace_over);
}

bool InodeWithin(const fs::QuotaUse& use) {
  return Within(use.inodes_used, 1, use.inodes_hard, use.inodes_soft, use.inodes_grace_over);
}

// Returns whether the use is below both limits. The soft one counts, because its grace may end at
// any time.
bool PlainlyWithin(const fs::QuotaUse& use, uint64_t bytes) {
  return Within(use.bytes_used, bytes, use.bytes_hard, use.bytes_soft, /*grace_over=*/true);
}

}  // namespace

QuotaLookup QuotaOfBacking(Backing& backing, int fd) {
  return [&backing, fd](fs::QuotaType type, uint32_t id) { return backing.QuotaOf(fd, type, id); };
}

QuotaGuard::QuotaGuard(QuotaLookup lookup, std::function<uint64_t()> unapplied)
    : lookup_(std::move(lookup)), unapplied_(std::move(unapplied)) {
  user_.store(lookup_(fs::QuotaType::kUser, 0).has_value());
  group_.store(lookup_(fs::QuotaType::kGroup, 0).has_value());
  thread_ = std::thread([this] { Work(); });
}

QuotaGuard::~QuotaGuard() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  asked_.notify_all();
  thread_.join();
}

void QuotaGuard::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    asked_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const Owner owner = queue_.front();
    queue_.pop_front();
    Figures& figures = owners_[owner];  // stays there while it is queued or looked at
    const uint64_t look = ++figures.begun;
    figures.next_beside = unapplied_();  // before the look: bytes applied during it count twice
    busy_since_ms_ = MonotonicMillis();
    lock.unlock();
    std::optional<fs::QuotaUse> use = lookup_(owner.first, owner.second);
    lock.lock();
    busy_since_ms_ = 0;
    // Root's figures tell whether quotas are on.
    if (owner.second == 0) {
      (owner.first == fs::QuotaType::kUser ? user_ : group_).store(use.has_value());
    }
    figures.use = use;
    figures.beside = figures.next_beside;
    figures.looked_ms = MonotonicMillis();
    figures.done = look;
    figures.queued = false;
    if (owners_.size() > kMostOwners) {
      std::erase_if(
          owners_, [&](const auto& entry) { return !entry.second.queued && entry.first != owner; });
    }
    answered_.notify_all();
  }
}

void QuotaGuard::Queue(const Owner& owner, Figures& figures) const {
  // A look under way began too early: `queued` falls when it ends, and the caller asks again.
  if (figures.queued) return;
  figures.queued = true;
  queue_.push_back(owner);
  asked_.notify_one();
}

void QuotaGuard::Refresh() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const fs::QuotaType type : {fs::QuotaType::kUser, fs::QuotaType::kGroup}) {
    Queue({type, 0}, owners_[{type, 0}]);
  }
}

QuotaGuard::Figures QuotaGuard::LookAt(const Owner& owner) const {
  std::unique_lock<std::mutex> lock(mutex_);
  const Deadline bound = Deadline::AfterMillis(SystemClock(), kLookWaitMs);
  const uint64_t wanted = owners_[owner].begun + 1;
  while (true) {
    Figures& figures = owners_[owner];
    if (figures.done >= wanted) return figures;
    Queue(owner, figures);
    const bool stalled = busy_since_ms_ != 0 && MonotonicMillis() - busy_since_ms_ >= kLookWaitMs;
    const std::chrono::nanoseconds left(bound.RemainingNs(SystemClock()));
    if (stalled || answered_.wait_for(lock, left) == std::cv_status::timeout) {
      return owners_[owner];
    }
  }
}

bool QuotaGuard::OwnerHasBytes(const Owner& owner, uint64_t bytes) const {
  const auto claim = [&] {
    Figures& figures = owners_[owner];
    figures.beside += bytes;
    figures.next_beside += bytes;
  };
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Figures& figures = owners_[owner];
    const bool fresh = figures.done > 0 && MonotonicMillis() - figures.looked_ms <= kFreshMs;
    if (fresh && (!figures.use || PlainlyWithin(*figures.use, figures.beside + bytes))) {
      claim();
      return true;
    }
  }
  const Figures figures = LookAt(owner);
  if (figures.use && !BytesWithin(*figures.use, figures.beside + bytes)) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  claim();
  return true;
}

bool QuotaGuard::OwnerIsFar(const Owner& owner) const {
  for (const bool look : {false, true}) {
    if (look) LookAt(owner);
    const std::lock_guard<std::mutex> lock(mutex_);
    Figures& figures = owners_[owner];
    const bool fresh = figures.done > 0 && MonotonicMillis() - figures.looked_ms <= kFreshMs;
    if (!fresh) continue;
    if (!figures.use || PlainlyWithin(*figures.use, figures.beside + kFarBytes)) {
      figures.beside += kChangeBytes;
      figures.next_beside += kChangeBytes;
      return true;
    }
  }
  return false;
}

// No exemption for root here: its files may have a group with a limit.
bool QuotaGuard::IsFar(uid_t uid, gid_t gid) const {
  return (uid == 0 || !user_.load() || OwnerIsFar({fs::QuotaType::kUser, uid})) &&
         (gid == 0 || !group_.load() || OwnerIsFar({fs::QuotaType::kGroup, gid}));
}

bool QuotaGuard::HasBytes(uid_t uid, gid_t gid, uint64_t bytes) const {
  if (uid == 0 || bytes == 0) return true;
  return (!user_.load() || OwnerHasBytes({fs::QuotaType::kUser, uid}, bytes)) &&
         (!group_.load() || OwnerHasBytes({fs::QuotaType::kGroup, gid}, bytes));
}

bool QuotaGuard::HasInode(uid_t uid, gid_t gid) const {
  if (uid == 0) return true;
  const auto within = [&](fs::QuotaType type, uint32_t id) {
    const Figures figures = LookAt({type, id});
    return !figures.use || InodeWithin(*figures.use);
  };
  return (!user_.load() || within(fs::QuotaType::kUser, uid)) &&
         (!group_.load() || within(fs::QuotaType::kGroup, gid));
}

bool QuotaGuard::GroupHas(gid_t gid, uint64_t bytes) const {
  if (!group_.load()) return true;
  const Figures figures = LookAt({fs::QuotaType::kGroup, gid});
  return !figures.use || (BytesWithin(*figures.use, bytes) && InodeWithin(*figures.use));
}

}  // namespace salius
