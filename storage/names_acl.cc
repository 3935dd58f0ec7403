#include "storage/names_acl.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "common/bytes.h"
#include "common/check.h"
#include "storage/posix_acl.h"

namespace salius {
namespace {

uint16_t Get16(const std::string& bytes, size_t at) { return LoadU16(bytes.data() + at); }

// Makes the kernel's checks of an ACL that is set (posix_acl_valid), except for the ids that it
// names: the kernel passes on whatever a damaged disk holds. The entries must be in the order of
// their tags. There must be one each for owner, group and others, without which nothing would bound
// the bits of the mode, and a mask when a user or group is named.
absl::Status CheckAcl(const std::string& acl) {
  if (acl.size() < kAclHeaderBytes || (acl.size() - kAclHeaderBytes) % kAclEntryBytes != 0 ||
      LoadU32(acl.data()) != kAclVersion) {
    return absl::InvalidArgumentError("a default ACL of a wrong size or version");
  }
  uint16_t before = 0, seen = 0;
  for (size_t at = kAclHeaderBytes; at < acl.size(); at += kAclEntryBytes) {
    const uint16_t tag = Get16(acl, at);
    const bool once = tag != kAclUser && tag != kAclGroup;
    if (!std::has_single_bit(tag) || tag > kAclOther || tag < before || (once && tag == before) ||
        Get16(acl, at + 2) > 07) {
      return absl::InvalidArgumentError("a default ACL with a wrong entry");
    }
    before = tag;
    seen |= tag;
  }
  const uint16_t needed = kAclUserObj | kAclGroupObj | kAclOther |
                          ((seen & (kAclUser | kAclGroup)) != 0 ? kAclMask : 0);
  if ((seen & needed) != needed) {
    return absl::InvalidArgumentError("a default ACL that lacks an entry");
  }
  return absl::OkStatus();
}

// Narrows the permissions of the entry at `at` and those of `mode` at `shift` to their common bits.
void Narrow(std::string& acl, size_t at, int shift, mode_t& mode) {
  const mode_t perm = Get16(acl, at + 2) & (mode >> shift) & 07;
  acl[at + 2] = static_cast<char>(perm);
  acl[at + 3] = 0;
  mode = (mode & ~(static_cast<mode_t>(07) << shift)) | (perm << shift);
}

// Makes the access ACL of an object below a default ACL (POSIX 1003.1e, withdrawn, 23.1.2). Changes
// `acl` and `mode`; returns whether the ACL says more than the mode.
absl::StatusOr<bool> MaskAcl(std::string& acl, mode_t& mode) {
  SALIUS_RETURN_IF_ERROR(CheckAcl(acl));
  size_t group = 0;
  size_t mask = 0;
  bool extended = false;
  for (size_t at = kAclHeaderBytes; at < acl.size(); at += kAclEntryBytes) {
    switch (Get16(acl, at)) {
      case kAclUserObj:
        Narrow(acl, at, 6, mode);
        break;
      case kAclOther:
        Narrow(acl, at, 0, mode);
        break;
      case kAclGroupObj:
        group = at;
        break;
      case kAclMask:
        mask = at;
        extended = true;
        break;
      default:  // a named user or group
        extended = true;
        break;
    }
  }
  Narrow(acl, mask != 0 ? mask : group, 3, mode);
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
