// System calls on the blocks of the backing file system: allocation, sharing, limits and quotas.
// Where the file system does not say, each returns the safe answer.
#pragma once

#include <cstdint>
#include <optional>

namespace salius::fs {

// Returns whether the file system can hold a file of `size` bytes, free space and quotas aside.
bool SizeFits(int fd, uint64_t size);

// Returns whether the file system of `fd` (btrfs) writes overwritten blocks elsewhere, for which it
// needs room; true where it does not say.
bool CopiesOnWrite(int fd);

// Returns whether the file system (XFS) may have allocated blocks beyond the end of the file `fd`
// for itself, and may take them back. It does not once fallocate has asked for such blocks.
bool MayTakeBlocksBack(int fd);

// Returns the size of the blocks that two files on the file system of `root` (XFS) may share; 0
// where none may, or where CopiesOnWrite leaves room for them.
uint64_t SharedBlockBytes(int root);
// Returns whether the byte at `at` of the file `fd` lies in a shared block; true where the file
// system does not say.
bool IsShared(int fd, uint64_t at);

// Returns how many bytes of the range have no block of their own yet, so that writing them needs
// space. An upper bound: the whole range where the file system does not say.
uint64_t UnallocatedBytes(int fd, uint64_t offset, uint64_t length);

// The figures of quotactl(2) for one owner; nullopt when quotas of the type are not on.
struct QuotaUse {
  uint64_t bytes_used = 0, bytes_hard = 0, bytes_soft = 0;  // limits: 0 is none
  uint64_t inodes_used = 0, inodes_hard = 0, inodes_soft = 0;
  bool bytes_grace_over = false, inodes_grace_over = false;
};
enum class QuotaType { kUser, kGroup };
std::optional<QuotaUse> QuotaOf(int fd, QuotaType type, uint32_t id);
// Returns whether the file system of `fd` (XFS) keeps root's changes of others' files within the
// limits of their owners too; true where it does not say.
bool QuotaBindsRoot(int fd);

}  // namespace salius::fs
