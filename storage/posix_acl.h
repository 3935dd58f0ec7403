// POSIX ACLs as the kernel gives and takes them in extended attributes (linux/posix_acl_xattr.h): a
// 4-byte version, then entries of 8 bytes (tag, permissions, user or group id), little-endian.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace salius {

// Its value shows in the permission bits, and changes with them.
inline constexpr char kAccessAclXattr[] = "system.posix_acl_access";
inline constexpr char kDefaultAclXattr[] = "system.posix_acl_default";

inline constexpr uint32_t kAclVersion = 2;
inline constexpr size_t kAclHeaderBytes = 4;
inline constexpr size_t kAclEntryBytes = 8;
enum AclTag : uint16_t {
  kAclUserObj = 0x01,
  kAclUser = 0x02,
  kAclGroupObj = 0x04,
  kAclGroup = 0x08,
  kAclMask = 0x10,
  kAclOther = 0x20,
};

// Returns the permission bits of a file that gets this value as its access ACL. Nothing when
// `value` is not an ACL.
std::optional<mode_t> ModeOfAcl(std::string_view value);

}  // namespace salius
