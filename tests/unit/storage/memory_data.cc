// Contents of files, free space and quotas of MemoryBacking.
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>

#include "common/check.h"
#include "storage/apply.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius {
namespace {

absl::Status Error(int error, std::string_view what) { return ErrnoStatus(error, what); }

constexpr uint64_t kMaxOffset = static_cast<uint64_t>(INT64_MAX);

}  // namespace

uint64_t MemoryBacking::FreeBlocks() const {
  return options_.bytes / options_.block_bytes - now_.used_blocks;
}

absl::StatusOr<MemoryBacking::Inode*> MemoryBacking::Writable(int fd, int not_writable) {
  const Open* const open = Find(fd);
  if (open == nullptr || (open->flags & O_PATH) != 0) return Error(EBADF, "write");
  if ((open->flags & O_ACCMODE) == O_RDONLY) return Error(not_writable, "write");
  return &now_.inodes.at(open->ino);
}

// The file loses its capability, as the kernel has it.
void MemoryBacking::NoteDataChange(Inode& inode) {
  inode.xattrs.erase(kCapabilityXattr);
  inode.mtime = inode.ctime = Tick();
}

absl::StatusOr<size_t> MemoryBacking::Pread(int fd, void* out, size_t size, uint64_t offset) {
  if (!amid_read_) return ReadPart(fd, out, size, offset);
  const size_t half = size / 2;
  SALIUS_ASSIGN_OR_RETURN(const size_t first, ReadPart(fd, out, half, offset));
  amid_read_();
  if (first < half) return first;
  SALIUS_ASSIGN_OR_RETURN(const size_t second,
                          ReadPart(fd, static_cast<char*>(out) + half, size - half, offset + half));
  return first + second;
}

absl::StatusOr<size_t> MemoryBacking::ReadPart(int fd, void* out, size_t size, uint64_t offset) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kRead));
  const Open* const open = Find(fd);
  if (open == nullptr || (open->flags & (O_PATH | O_WRONLY)) != 0) return Error(EBADF, "pread");
  Inode& inode = now_.inodes.at(open->ino);
  if (inode.is_dir()) return Error(EISDIR, "pread");
  if (offset > kMaxOffset) return Error(EINVAL, "pread");
  Fetched(inode, offset, size);
  return inode.data.Read(offset, static_cast<char*>(out), size);
}

void MemoryBacking::Fetched(Inode& inode, uint64_t offset, uint64_t length) {
  if (length == 0) return;
  inode.missing.erase(inode.missing.lower_bound(offset / kPageBytes),
                      inode.missing.upper_bound((offset + length - 1) / kPageBytes));
}

void MemoryBacking::DropPagesOf(Inode& inode) {
  for (uint64_t page = 0; page * kPageBytes < inode.data.size(); ++page) {
    inode.missing.insert(page);
  }
}

void MemoryBacking::DropPages(int fd) {
  absl::MutexLock lock(&mu_);
  DropPagesOf(*FindInode(fd));
}

void MemoryBacking::DropAllPages() {
  absl::MutexLock lock(&mu_);
  for (auto& [ino, inode] : now_.inodes) DropPagesOf(inode);
}

bool MemoryBacking::ArePagesCached(int fd, uint64_t offset, uint64_t length) {
  absl::MutexLock lock(&mu_);
  const Inode* const inode = FindInode(fd);
  if (inode == nullptr || length == 0) return true;
  const auto missing = inode->missing.lower_bound(offset / kPageBytes);
  return missing == inode->missing.end() || *missing > (offset + length - 1) / kPageBytes;
}

void MemoryBacking::BeginFetch(int fd, uint64_t offset, uint64_t length) {
  absl::MutexLock lock(&mu_);
  Inode* const inode = FindInode(fd);
  if (inode != nullptr) Fetched(*inode, offset, length);
}

absl::Status MemoryBacking::WritePart(Inode& inode, std::string_view data, uint64_t offset) {
  absl::Status status;
  if (offset >= options_.max_file_bytes) return Error(EFBIG, "pwrite");
  if (data.size() > options_.max_file_bytes - offset) {
    data = data.substr(0, options_.max_file_bytes - offset);
    status = Error(EFBIG, "pwrite");
  }
  const uint64_t before = inode.data.blocks();
  while (!data.empty()) {
    const uint64_t rest = options_.block_bytes - offset % options_.block_bytes;
    const std::string_view piece = data.substr(0, rest);
    if (inode.data.MissingBlocks(offset, piece.size()) >
        FreeBlocks() - (inode.data.blocks() - before)) {
      status = Error(ENOSPC, "pwrite");
      break;
    }
    inode.data.Write(offset, piece);
    offset += piece.size();
    data.remove_prefix(piece.size());
  }
  now_.used_blocks += inode.data.blocks() - before;
  return status;
}

absl::Status MemoryBacking::Pwritev(int fd, absl::Span<const iovec> parts, uint64_t offset) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kWrite));
  SALIUS_ASSIGN_OR_RETURN(Inode* const inode, Writable(fd, EBADF));
  if (offset > kMaxOffset) return Error(EINVAL, "pwrite");
  for (const iovec& part : parts) {
    if (part.iov_len == 0) continue;
    NoteDataChange(*inode);
    Fetched(*inode, offset, part.iov_len);
    const std::string_view data(static_cast<const char*>(part.iov_base), part.iov_len);
    SALIUS_RETURN_IF_ERROR(WritePart(*inode, data, offset));
    offset += data.size();
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> MemoryBacking::SizeOf(int fd) {
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, Stat(fd));
  return static_cast<uint64_t>(st.st_size);
}

absl::Status MemoryBacking::PwritevSynced(int fd, absl::Span<const iovec> parts, uint64_t offset) {
  SALIUS_RETURN_IF_ERROR(Pwritev(fd, parts, offset));
  return Fdatasync(fd);
}

absl::Status MemoryBacking::Truncate(int fd, uint64_t size) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kTruncate));
  if (size > kMaxOffset) return Error(EFBIG, "ftruncate");
  SALIUS_ASSIGN_OR_RETURN(Inode* const inode, Writable(fd, EINVAL));
  if (size > options_.max_file_bytes) return Error(EFBIG, "ftruncate");
  const uint64_t before = inode->data.blocks();
  inode->data.Resize(size);
  now_.used_blocks -= before - inode->data.blocks();
  NoteDataChange(*inode);
  return absl::OkStatus();
}

absl::Status MemoryBacking::Fallocate(int fd, int mode, uint64_t offset, uint64_t length) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kFallocate));
  if (offset > kMaxOffset || length > kMaxOffset) return Error(EFBIG, "fallocate");
  SALIUS_ASSIGN_OR_RETURN(Inode* const inode, Writable(fd, EBADF));
  constexpr int kPunch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  const int kind = mode & ~FALLOC_FL_KEEP_SIZE;
  if (length == 0) return Error(EINVAL, "fallocate");
  if (kind != 0 && kind != FALLOC_FL_ZERO_RANGE && mode != kPunch) {
    return Error(EOPNOTSUPP, "fallocate");
  }
  if (offset + length > options_.max_file_bytes) return Error(EFBIG, "fallocate");
  const uint64_t before = inode->data.blocks();
  if (mode == kPunch) {
    inode->data.Punch(offset, length);
  } else {
    if (inode->data.MissingBlocks(offset, length) > FreeBlocks()) {
      return Error(ENOSPC, "fallocate");
    }
    if (kind == FALLOC_FL_ZERO_RANGE) {
      inode->data.Zero(offset, length);
    } else {
      inode->data.Allocate(offset, length);
    }
    const bool keeps = (mode & FALLOC_FL_KEEP_SIZE) != 0;
    if (!keeps && offset + length > inode->data.size()) inode->data.Resize(offset + length);
  }
  now_.used_blocks += inode->data.blocks();
  now_.used_blocks -= before;
  NoteDataChange(*inode);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> MemoryBacking::Seek(int fd, uint64_t offset, int whence) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kRead));
  const Open* const open = Find(fd);
  if (open == nullptr || (open->flags & O_PATH) != 0) return Error(EBADF, "lseek");
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return Error(EINVAL, "lseek");
  const SparseFile& data = now_.inodes.at(open->ino).data;
  const std::optional<uint64_t> found =
      whence == SEEK_DATA ? data.NextData(offset) : data.NextHole(offset);
  if (!found.has_value()) return Error(ENXIO, "lseek");
  return *found;
}

absl::StatusOr<struct statvfs> MemoryBacking::StatVfs(int fd) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kSpace));
  if (Find(fd) == nullptr) return Error(EBADF, "fstatvfs");
  struct statvfs st {};
  st.f_bsize = st.f_frsize = options_.block_bytes;
  st.f_blocks = options_.bytes / options_.block_bytes;
  st.f_bfree = st.f_bavail = FreeBlocks();
  st.f_files = options_.inodes;
  st.f_ffree = st.f_favail = options_.inodes - now_.inodes.size();
  st.f_namemax = 255;
  return st;
}

absl::StatusOr<FsSpace> MemoryBacking::FreeSpace(int fd) {
  SALIUS_ASSIGN_OR_RETURN(const struct statvfs st, StatVfs(fd));
  FsSpace space;
  space.bytes_total = st.f_blocks * st.f_frsize;
  space.bytes_free = space.bytes_avail = st.f_bfree * st.f_frsize;
  space.inodes_free = st.f_ffree;
  space.inodes_total = st.f_files;
  return space;
}

bool MemoryBacking::SizeFits(int fd, uint64_t size) {
  absl::MutexLock lock(&mu_);
  return Find(fd) != nullptr && size <= options_.max_file_bytes;
}

uint64_t MemoryBacking::UnallocatedBytes(int fd, uint64_t offset, uint64_t length) {
  absl::MutexLock lock(&mu_);
  const Open* const open = Find(fd);
  if (open == nullptr || (open->flags & O_PATH) != 0) return length;
  return now_.inodes.at(open->ino).data.MissingBytes(offset, length);
}

std::optional<fs::QuotaUse> MemoryBacking::QuotaOf(int, fs::QuotaType type, uint32_t id) {
  absl::MutexLock lock(&mu_);
  if (quota_types_.count(type) == 0) return std::nullopt;
  fs::QuotaUse use;
  if (const auto limits = quotas_.find({type, id}); limits != quotas_.end()) use = limits->second;
  use.bytes_used = use.inodes_used = 0;
  for (const auto& [ino, inode] : now_.inodes) {
    if ((type == fs::QuotaType::kUser ? inode.uid : inode.gid) != id) continue;
    use.bytes_used += inode.data.blocks() * options_.block_bytes;
    ++use.inodes_used;
  }
  return use;
}

}  // namespace salius
