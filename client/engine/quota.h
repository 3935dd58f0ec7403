// Disk quotas of file owners. The volume applies records as root, whom the kernel lets past every
// limit, so the owner's limits are checked here, before a record is stamped.
//
// User and group quotas; project quotas are not looked at. Root's own files are exempt, as in the
// kernel. Threads: all methods from any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "client/engine/volume_calls.h"

namespace salius {

// What the file system says about an owner; nullopt when quotas of the type are not on.
using QuotaLookup = std::function<std::optional<fs::QuotaUse>(fs::QuotaType, uint32_t id)>;
// Asks the kernel about the file system of `fd`, which outlives the function.
QuotaLookup KernelQuota(int fd);

class QuotaGuard {
 public:
  explicit QuotaGuard(QuotaLookup lookup) : lookup_(std::move(lookup)) { Refresh(); }

  // Looks up again whether quotas are on at all (they may be switched on under us).
  void Refresh();
  bool on() const { return user_.load() || group_.load(); }

  // True when files of (uid, gid) may take `bytes` more, or one more inode.
  bool HasBytes(uid_t uid, gid_t gid, uint64_t bytes) const;
  bool HasInode(uid_t uid, gid_t gid) const;
  // True when the group may take over a file that has so many bytes.
  bool GroupHas(gid_t gid, uint64_t bytes) const;

 private:
  const QuotaLookup lookup_;
  std::atomic<bool> user_{false};
  std::atomic<bool> group_{false};
};

}  // namespace salius
