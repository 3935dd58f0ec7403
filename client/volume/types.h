// The values that a front passes to a volume and gets from it.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace salius {

// The caller of an operation: owner and group of new objects. Permission checks are the front's
// (the kernel's default_permissions on a mount).
struct Caller {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t umask = 0;           // applied by the volume unless the directory has a default ACL
  std::vector<gid_t> groups;  // supplementary; only for keeping S_ISGID in a setgid directory
  bool sgid_checked = false;  // it may keep S_ISGID there: the kernel has checked its groups
};

class Node;    // an inode in use; owned by the volume, alive while its lookup count is above zero
class Handle;  // an open file or directory

struct Entry {
  Node* node = nullptr;  // lookup count was raised by one
  struct stat attr {};
  bool provisional = false;  // of `attr`: see AttrOps::GetAttr
};

// A file that was made, and is open.
struct Created {
  Entry entry;
  Handle* handle = nullptr;
};

struct DirEntry {
  std::string name;
  uint64_t next_offset = 0;
  ino_t ino = 0;
  uint32_t type = 0;  // S_IFMT bits
};

// SetAttr: which fields of `stat` count.
enum SetAttrMask : uint32_t {
  kSetMode = 1u << 0,
  kSetUid = 1u << 1,
  kSetGid = 1u << 2,
  kSetSize = 1u << 3,
  kSetAtime = 1u << 4,
  kSetMtime = 1u << 5,
  kSetAtimeNow = 1u << 6,
  kSetMtimeNow = 1u << 7,
};

}  // namespace salius
