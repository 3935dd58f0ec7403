// System calls on the blocks of the backing file system: allocation, sharing, limits and quotas.
// Where the file system does not say, each answers on the safe side.
#pragma once

#include <cstdint>
#include <optional>

namespace salius::fs {

// True when the file system can hold a file of `size` bytes (it knows no ENOSPC or quota here).
bool SizeFits(int fd, uint64_t size);

// Whether the file system of `fd` (btrfs) writes what is overwritten elsewhere, for which it needs
// room; true where it does not say.
bool CopiesOnWrite(int fd);

// Whether the file system (XFS) may have allocated blocks beyond the end of the file `fd` for
// itself, and take them back: not once somebody has asked for such blocks with fallocate.
bool MayTakeBlocksBack(int fd);

// The size of the blocks that two files on the file system of `root` (XFS) may have in common; 0
// where none may, or where CopiesOnWrite leaves room for them.
uint64_t SharedBlockBytes(int root);
// Whether the byte at `at` of the file `fd` lies in such a block; true where nobody says.
bool IsShared(int fd, uint64_t at);

// How many bytes of the range have no block of their own yet, so that writing them needs space. A
// conservative bound: everything where the file system does not say.
uint64_t UnallocatedBytes(int fd, uint64_t offset, uint64_t length);

// What quotactl(2) says about one owner. nullopt when quotas of the type are not on.
struct QuotaUse {
  uint64_t bytes_used = 0, bytes_hard = 0, bytes_soft = 0;  // limits: 0 is none
  uint64_t inodes_used = 0, inodes_hard = 0, inodes_soft = 0;
  bool bytes_grace_over = false, inodes_grace_over = false;
};
enum class QuotaType { kUser, kGroup };
std::optional<QuotaUse> QuotaOf(int fd, QuotaType type, uint32_t id);

}  // namespace salius::fs
