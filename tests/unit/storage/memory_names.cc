// Names and directories of MemoryBacking.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <algorithm>

#include "common/check.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius {
namespace {

constexpr size_t kMaxName = 255, kMaxTarget = 4095;
constexpr uint64_t kSelf = 1, kParent = 2;  // offsets of "." and ".." in listings

absl::Status Error(int error, std::string_view what) { return ErrnoStatus(error, what); }

}  // namespace

absl::StatusOr<MemoryBacking::Inode*> MemoryBacking::DirOf(int dirfd, const std::string& name) {
  Inode* const dir = FindInode(dirfd);
  if (dir == nullptr) return Error(EBADF, name);
  if (!dir->is_dir()) return Error(ENOTDIR, name);
  if (name.empty()) return Error(ENOENT, name);
  if (name.size() > kMaxName) return Error(ENAMETOOLONG, name);
  return dir;
}

absl::StatusOr<MemoryBacking::Inode*> MemoryBacking::NewInode(const Inode& dir, mode_t mode) {
  const uint64_t blocks = S_ISDIR(mode) ? 1 : 0;
  if (now_.inodes.size() >= options_.inodes || blocks > FreeBlocks()) {
    return Error(ENOSPC, "new object");
  }
  Inode inode(options_.block_bytes);
  inode.ino = options_.reuse_inodes ? kRootIno + 1 : next_ino_++;
  while (options_.reuse_inodes && now_.inodes.count(inode.ino) > 0) ++inode.ino;
  inode.mode = mode;
  if ((dir.mode & S_ISGID) != 0) {
    inode.gid = dir.gid;
    if (S_ISDIR(mode)) inode.mode |= S_ISGID;
  }
  if (S_ISDIR(mode)) {
    inode.data.Allocate(0, 1);
    inode.links = 1;  // "."
  }
  now_.used_blocks += blocks;
  inode.atime = inode.mtime = inode.ctime = inode.btime = Tick();
  const ino_t ino = inode.ino;
  return &now_.inodes.emplace(ino, std::move(inode)).first->second;
}

void MemoryBacking::Bind(Inode& dir, const std::string& name, Inode& inode) {
  dir.entries[name] = {inode.ino, next_cookie_++};
  ++inode.links;
  if (inode.is_dir()) {
    inode.parent = dir.ino;
    ++dir.links;
  }
  inode.ctime = dir.mtime = dir.ctime = Tick();
}

void MemoryBacking::Unbind(Inode& dir, const std::string& name) {
  const auto entry = dir.entries.find(name);
  Inode& inode = now_.inodes.at(entry->second.ino);
  dir.entries.erase(entry);
  --inode.links;
  if (inode.is_dir()) --dir.links;
  inode.ctime = dir.mtime = dir.ctime = Tick();
}

absl::StatusOr<MemoryBacking::Inode*> MemoryBacking::Make(int dirfd, const std::string& name,
                                                          mode_t mode) {
  SALIUS_RETURN_IF_ERROR(Begin(Call::kMake));
  SALIUS_ASSIGN_OR_RETURN(Inode* const dir, DirOf(dirfd, name));
  if (name == "." || name == ".." || dir->entries.count(name) > 0) return Error(EEXIST, name);
  if (dir->links == 0) return Error(ENOENT, "the directory was removed");
  if (dir->marks.immutable) return Error(EPERM, name);
  SALIUS_ASSIGN_OR_RETURN(Inode* const inode, NewInode(*dir, mode));
  Bind(*dir, name, *inode);
  return inode;
}

absl::Status MemoryBacking::MkdirAt(int dirfd, const std::string& name, mode_t mode) {
  absl::MutexLock lock(&mu_);
  return Make(dirfd, name, S_IFDIR | (mode & 01777)).status();
}

absl::Status MemoryBacking::MakeNode(int dirfd, const std::string& name, mode_t mode,
                                     dev_t device) {
  absl::MutexLock lock(&mu_);
  if (S_ISDIR(mode)) return Error(EPERM, name);
  if ((mode & S_IFMT) == 0) mode |= S_IFREG;
  SALIUS_ASSIGN_OR_RETURN(Inode* const inode, Make(dirfd, name, mode));
  if (S_ISCHR(mode) || S_ISBLK(mode)) inode->device = device;
  return absl::OkStatus();
}

absl::Status MemoryBacking::Symlink(const std::string& target, int dirfd, const std::string& name) {
  absl::MutexLock lock(&mu_);
  if (target.empty()) return Error(ENOENT, "symlink");
  if (target.size() > kMaxTarget) return Error(ENAMETOOLONG, "symlink");
  SALIUS_ASSIGN_OR_RETURN(Inode* const inode, Make(dirfd, name, S_IFLNK | 0777));
  inode->target = target;
  return absl::OkStatus();
}

absl::Status MemoryBacking::CheckRemovable(const Inode& dir, const Inode& inode) const {
  if (dir.is_marked() || inode.is_marked()) return Error(EPERM, "marked by chattr");
  return absl::OkStatus();
}

absl::Status MemoryBacking::Unlink(int dirfd, const std::string& name, int flags) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kUnlink));
  SALIUS_ASSIGN_OR_RETURN(Inode* const dir, DirOf(dirfd, name));
  const bool directory = (flags & AT_REMOVEDIR) != 0;
  if (name == ".") return Error(directory ? EINVAL : EISDIR, name);
  if (name == "..") return Error(directory ? ENOTEMPTY : EISDIR, name);
  SALIUS_ASSIGN_OR_RETURN(Inode* const inode, Walk(dirfd, name));
  SALIUS_RETURN_IF_ERROR(CheckRemovable(*dir, *inode));
  if (directory && !inode->is_dir()) return Error(ENOTDIR, name);
  if (!directory && inode->is_dir()) return Error(EISDIR, name);
  if (directory && !inode->entries.empty()) return Error(ENOTEMPTY, name);
  Unbind(*dir, name);
  if (directory) inode->links = 0;
  Collect(inode->ino);
  return absl::OkStatus();
}

absl::Status MemoryBacking::LinkFd(int fd, int dirfd, const std::string& name) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kLink));
  Inode* const inode = FindInode(fd);
  if (inode == nullptr) return Error(EBADF, name);
  SALIUS_ASSIGN_OR_RETURN(Inode* const dir, DirOf(dirfd, name));
  if (name == "." || name == ".." || dir->entries.count(name) > 0) return Error(EEXIST, name);
  if (dir->links == 0) return Error(ENOENT, "the directory was removed");
  if (dir->marks.immutable || inode->is_marked()) return Error(EPERM, name);
  if (inode->is_dir()) return Error(EPERM, name);
  if (inode->links == 0 && !inode->linkable) return Error(ENOENT, name);
  if (inode->links >= options_.max_links) return Error(EMLINK, name);
  Bind(*dir, name, *inode);
  inode->linkable = false;
  return absl::OkStatus();
}

bool MemoryBacking::IsBelow(const Inode& inode, const Inode& dir) {
  const Inode* at = &inode;
  while (at->ino != dir.ino && at->ino != kRootIno) at = &now_.inodes.at(at->parent);
  return at->ino == dir.ino;
}

absl::Status MemoryBacking::CheckReplaceable(const Inode& victim, const Inode& moved) const {
  if (moved.is_dir() && !victim.is_dir()) return Error(ENOTDIR, "rename");
  if (!moved.is_dir() && victim.is_dir()) return Error(EISDIR, "rename");
  return victim.entries.empty() ? absl::OkStatus() : Error(ENOTEMPTY, "rename");
}

absl::Status MemoryBacking::Rename(int from_dirfd, const std::string& from, int to_dirfd,
                                   const std::string& to, unsigned flags) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kRename));
  const bool exchange = (flags & RENAME_EXCHANGE) != 0;
  const bool whiteout = (flags & RENAME_WHITEOUT) != 0;
  if (exchange && (flags & (RENAME_NOREPLACE | RENAME_WHITEOUT)) != 0) return Error(EINVAL, from);
  SALIUS_ASSIGN_OR_RETURN(Inode* const from_dir, DirOf(from_dirfd, from));
  SALIUS_ASSIGN_OR_RETURN(Inode* const to_dir, DirOf(to_dirfd, to));
  for (const std::string& name : {from, to}) {
    if (name == "." || name == "..") return Error(EBUSY, name);
  }
  SALIUS_ASSIGN_OR_RETURN(Inode* const moved, Walk(from_dirfd, from));
  const absl::StatusOr<Inode*> there = Walk(to_dirfd, to);
  Inode* const victim = there.ok() ? *there : nullptr;
  if (victim != nullptr && (flags & RENAME_NOREPLACE) != 0) return Error(EEXIST, to);
  if (victim == nullptr && exchange) return Error(ENOENT, to);
  if (to_dir->links == 0) return Error(ENOENT, "the directory was removed");
  if (moved->is_dir() && IsBelow(*to_dir, *moved)) return Error(EINVAL, to);
  if (victim != nullptr && victim->is_dir() && IsBelow(*from_dir, *victim)) {
    return Error(exchange ? EINVAL : ENOTEMPTY, to);
  }
  if (moved == victim) return absl::OkStatus();
  SALIUS_RETURN_IF_ERROR(CheckRemovable(*from_dir, *moved));
  if (to_dir->marks.immutable) return Error(EPERM, to);
  if (victim != nullptr) SALIUS_RETURN_IF_ERROR(CheckRemovable(*to_dir, *victim));
  if (victim != nullptr && !exchange) SALIUS_RETURN_IF_ERROR(CheckReplaceable(*victim, *moved));
  Inode* left = nullptr;
  if (whiteout) {
    SALIUS_ASSIGN_OR_RETURN(left, NewInode(*from_dir, S_IFCHR));
  }
  Unbind(*from_dir, from);
  if (victim != nullptr) Unbind(*to_dir, to);
  Bind(*to_dir, to, *moved);
  if (left != nullptr) Bind(*from_dir, from, *left);
  if (victim != nullptr && exchange) Bind(*from_dir, from, *victim);
  if (victim != nullptr && !exchange) {
    if (victim->is_dir()) victim->links = 0;
    Collect(victim->ino);
  }
  return absl::OkStatus();
}

// ---- Directories

absl::StatusOr<std::vector<std::string>> MemoryBacking::ListDir(int dirfd) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kReadDir));
  SALIUS_ASSIGN_OR_RETURN(const Inode* const dir, Walk(dirfd, "."));
  std::vector<std::string> names;
  for (const auto& [name, entry] : dir->entries) names.push_back(name);
  return names;
}

absl::StatusOr<bool> MemoryBacking::IsEmptyDir(int dirfd) {
  SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(dirfd));
  return names.empty();
}

absl::StatusOr<std::vector<fs::RawDirEntry>> MemoryBacking::ReadDirents(int fd) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kReadDir));
  Open* const open = Find(fd);
  if (open == nullptr || (open->flags & O_PATH) != 0) return Error(EBADF, "readdir");
  const Inode& dir = now_.inodes.at(open->ino);
  if (!dir.is_dir()) return Error(ENOTDIR, "readdir");
  if (dir.links == 0) return std::vector<fs::RawDirEntry>();
  std::vector<fs::RawDirEntry> entries = {{".", kSelf, dir.ino, S_IFDIR},
                                          {"..", kParent, dir.parent, S_IFDIR}};
  for (const auto& [name, entry] : dir.entries) {
    const mode_t type = now_.inodes.at(entry.ino).mode & S_IFMT;
    entries.push_back({name, entry.cookie, entry.ino, type});
  }
  std::erase_if(entries, [&](const auto& entry) { return entry.next_offset <= open->position; });
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.next_offset < b.next_offset; });
  if (entries.size() > options_.dir_batch) entries.resize(options_.dir_batch);
  if (!entries.empty()) open->position = entries.back().next_offset;
  return entries;
}

absl::Status MemoryBacking::SeekDir(int fd, uint64_t offset) {
  absl::MutexLock lock(&mu_);
  Open* const open = Find(fd);
  if (open == nullptr || (open->flags & O_PATH) != 0) return Error(EBADF, "seekdir");
  open->position = offset;
  return absl::OkStatus();
}

}  // namespace salius
