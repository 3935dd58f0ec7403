#include "client/engine/names_acl.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>

#include "common/check.h"
#include "log/apply.h"

namespace salius {
namespace {

// linux/posix_acl_xattr.h: a 4-byte version, then entries of 8 bytes, little-endian.
constexpr size_t kHeaderBytes = 4;
constexpr size_t kEntryBytes = 8;
constexpr uint16_t kUserObj = 0x01;
constexpr uint16_t kGroupObj = 0x04;
constexpr uint16_t kMask = 0x10;
constexpr uint16_t kOther = 0x20;

uint16_t Get16(const std::string& bytes, size_t at) {
  return static_cast<uint16_t>(static_cast<uint8_t>(bytes[at]) | static_cast<uint8_t>(bytes[at + 1])
                                                                     << 8);
}

// Narrows the permissions of the entry at `at` to what `mode` has at `shift`, and `mode` to them.
void Narrow(std::string& acl, size_t at, int shift, mode_t& mode) {
  const mode_t perm = Get16(acl, at + 2) & (mode >> shift) & 07;
  acl[at + 2] = static_cast<char>(perm);
  acl[at + 3] = 0;
  mode = (mode & ~(static_cast<mode_t>(07) << shift)) | (perm << shift);
}

// POSIX 1003.1e (withdrawn) 23.1.2: the access ACL of an object made below a default ACL. Changes
// `acl` and `mode`; returns whether the ACL says more than the mode.
absl::StatusOr<bool> MaskAcl(std::string& acl, mode_t& mode) {
  if (acl.size() < kHeaderBytes || (acl.size() - kHeaderBytes) % kEntryBytes != 0) {
    return absl::InvalidArgumentError("a default ACL of a wrong size");
  }
  size_t group = 0;
  size_t mask = 0;
  bool extended = false;
  for (size_t at = kHeaderBytes; at < acl.size(); at += kEntryBytes) {
    switch (Get16(acl, at)) {
      case kUserObj:
        Narrow(acl, at, 6, mode);
        break;
      case kOther:
        Narrow(acl, at, 0, mode);
        break;
      case kGroupObj:
        group = at;
        break;
      case kMask:
        mask = at;
        extended = true;
        break;
      default:  // a named user or group
        extended = true;
        break;
    }
  }
  const size_t group_class = mask != 0 ? mask : group;
  if (group_class == 0) return absl::InvalidArgumentError("a default ACL without a group entry");
  Narrow(acl, group_class, 3, mode);
  return extended;
}

}  // namespace

absl::StatusOr<Inherited> Inherit(const ParentFacts& parent, mode_t mode,
                                  const CallerFacts& caller) {
  Inherited result;
  result.mode = mode;
  result.gid = caller.gid;
  if ((parent.mode & S_ISGID) != 0) {
    result.gid = parent.gid;
    const bool member =
        caller.privileged || parent.gid == caller.gid ||
        std::find(caller.groups.begin(), caller.groups.end(), parent.gid) != caller.groups.end();
    if (S_ISDIR(mode)) {
      result.mode |= S_ISGID;
    } else if ((mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && !member) {
      result.mode &= ~static_cast<mode_t>(S_ISGID);
    }
  }
  if (S_ISLNK(mode)) return result;
  if (parent.default_acl.empty()) {
    result.mode &= ~(caller.umask & 0777);
    return result;
  }
  std::string access = parent.default_acl;
  SALIUS_ASSIGN_OR_RETURN(const bool extended, MaskAcl(access, result.mode));
  if (extended) result.xattrs.emplace_back(kAccessAclXattr, std::move(access));
  if (S_ISDIR(mode)) result.xattrs.emplace_back(kDefaultAclXattr, parent.default_acl);
  return result;
}

}  // namespace salius
