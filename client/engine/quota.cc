#include "client/engine/quota.h"

namespace salius {
namespace {

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

}  // namespace

QuotaLookup KernelQuota(int fd) {
  return [fd](fs::QuotaType type, uint32_t id) { return fs::QuotaOf(fd, type, id); };
}

void QuotaGuard::Refresh() {
  user_.store(lookup_(fs::QuotaType::kUser, 0).has_value());
  group_.store(lookup_(fs::QuotaType::kGroup, 0).has_value());
}

bool QuotaGuard::HasBytes(uid_t uid, gid_t gid, uint64_t bytes) const {
  if (uid == 0) return true;
  const auto within = [&](fs::QuotaType type, uint32_t id) {
    const std::optional<fs::QuotaUse> use = lookup_(type, id);
    return !use || BytesWithin(*use, bytes);
  };
  return (!user_.load() || within(fs::QuotaType::kUser, uid)) &&
         (!group_.load() || within(fs::QuotaType::kGroup, gid));
}

bool QuotaGuard::HasInode(uid_t uid, gid_t gid) const {
  if (uid == 0) return true;
  const auto within = [&](fs::QuotaType type, uint32_t id) {
    const std::optional<fs::QuotaUse> use = lookup_(type, id);
    return !use || InodeWithin(*use);
  };
  return (!user_.load() || within(fs::QuotaType::kUser, uid)) &&
         (!group_.load() || within(fs::QuotaType::kGroup, gid));
}

bool QuotaGuard::GroupHas(gid_t gid, uint64_t bytes) const {
  if (!group_.load()) return true;
  const std::optional<fs::QuotaUse> use = lookup_(fs::QuotaType::kGroup, gid);
  return !use || (BytesWithin(*use, bytes) && InodeWithin(*use));
}

}  // namespace salius
