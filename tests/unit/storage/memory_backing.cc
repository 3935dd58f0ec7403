// Descriptors, attributes and extended attributes.
#include "tests/unit/storage/memory_backing.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "common/bytes.h"
#include "common/check.h"
#include "storage/apply.h"
#include "storage/posix_acl.h"

namespace salius {
namespace {

constexpr dev_t kDevice = 0x5a11;
constexpr size_t kMaxName = 255, kMaxXattrName = 255, kMaxXattrValue = 65536;

absl::Status Error(int error, std::string_view what) { return ErrnoStatus(error, what); }

bool IsAcl(const std::string& name) { return name == kAccessAclXattr || name == kDefaultAclXattr; }

// Puts the permission bits of `mode` into the entries of an access ACL: owner, mask (without one:
// group), others.
void ChmodAcl(std::string& acl, mode_t mode) {
  const size_t entries = (acl.size() - kAclHeaderBytes) / kAclEntryBytes;
  char* const first = acl.data() + kAclHeaderBytes;
  bool has_mask = false;
  for (size_t i = 0; i < entries; ++i) {
    has_mask = has_mask || LoadU16(first + i * kAclEntryBytes) == kAclMask;
  }
  for (size_t i = 0; i < entries; ++i) {
    char* const entry = first + i * kAclEntryBytes;
    const uint16_t tag = LoadU16(entry);
    if (tag == kAclUserObj) StoreU16(entry + 2, (mode >> 6) & 7);
    if (tag == (has_mask ? kAclMask : kAclGroupObj)) StoreU16(entry + 2, (mode >> 3) & 7);
    if (tag == kAclOther) StoreU16(entry + 2, mode & 7);
  }
}

}  // namespace

MemoryBacking::MemoryBacking(const Options& options) : options_(options) {
  absl::MutexLock lock(&mu_);
  Inode root(options_.block_bytes);
  root.ino = root.parent = next_ino_++;
  root.mode = S_IFDIR | 0755;
  root.links = 2;
  root.data.Allocate(0, 1);
  root.atime = root.mtime = root.ctime = root.btime = Tick();
  now_.inodes.emplace(root.ino, std::move(root));
  now_.used_blocks = 1;
  disk_ = now_;
  root_ = next_fd_++;
  open_[root_] = {kRootIno, O_RDONLY | O_DIRECTORY, 0};
  ++opens_[kRootIno];
}

// ---- For tests

BackingFd MemoryBacking::NewFile(const std::string& name) {
  SALIUS_CHECK_OK(MakeNode(root_, name, S_IFREG | 0644, 0));
  auto fd = OpenAt(root_, name, O_RDWR);
  SALIUS_CHECK_OK(fd);
  return std::move(*fd);
}

uint64_t MemoryBacking::calls(Call call) const {
  absl::MutexLock lock(&mu_);
  return calls_[static_cast<size_t>(call)];
}

size_t MemoryBacking::open() const {
  absl::MutexLock lock(&mu_);
  return open_.size() - 1;
}

void MemoryBacking::SetQuota(fs::QuotaType type, uint32_t id, const fs::QuotaUse& limits) {
  absl::MutexLock lock(&mu_);
  quota_types_.insert(type);
  quotas_[{type, id}] = limits;
}

void MemoryBacking::SetMarks(int fd, const fs::ChangeMarks& marks) {
  absl::MutexLock lock(&mu_);
  Inode* const inode = FindInode(fd);
  SALIUS_CHECK(inode != nullptr);
  inode->marks = marks;
}

void MemoryBacking::SetDirsync(int fd, bool dirsync) {
  absl::MutexLock lock(&mu_);
  Inode* const inode = FindInode(fd);
  SALIUS_CHECK(inode != nullptr && inode->is_dir());
  inode->dirsync = dirsync;
}

bool MemoryBacking::IsNoAtime(int fd) const {
  absl::MutexLock lock(&mu_);
  return (open_.at(fd).flags & O_NOATIME) != 0;
}

// ---- Descriptors

MemoryBacking::Open* MemoryBacking::Find(int fd) {
  const auto found = open_.find(fd);
  return found == open_.end() ? nullptr : &found->second;
}

MemoryBacking::Inode* MemoryBacking::FindInode(int fd) {
  const Open* const open = Find(fd);
  return open == nullptr ? nullptr : &now_.inodes.at(open->ino);
}

absl::StatusOr<MemoryBacking::Inode*> MemoryBacking::Walk(int dirfd, const std::string& name) {
  Inode* const dir = FindInode(dirfd);
  if (dir == nullptr) return Error(EBADF, name);
  if (name.empty()) return dir;
  if (!dir->is_dir()) return Error(ENOTDIR, name);
  if (name.size() > kMaxName) return Error(ENAMETOOLONG, name);
  if (name == ".") return dir;
  if (name == "..") return &now_.inodes.at(dir->parent);
  const auto entry = dir->entries.find(name);
  if (entry == dir->entries.end()) return Error(ENOENT, name);
  return &now_.inodes.at(entry->second.ino);
}

absl::StatusOr<BackingFd> MemoryBacking::OpenInode(const Inode& inode, int flags) {
  if ((flags & O_DIRECTORY) != 0 && !inode.is_dir()) return Error(ENOTDIR, "open");
  if ((flags & O_PATH) == 0) {
    const bool writes = (flags & O_ACCMODE) != O_RDONLY;
    if (S_ISLNK(inode.mode)) return Error(ELOOP, "open");
    if (inode.is_dir() && writes) return Error(EISDIR, "open");
    if (!inode.is_dir() && !S_ISREG(inode.mode)) return Error(ENXIO, "open");
    if (writes && inode.is_marked()) return Error(EPERM, "open");
  }
  const int number = next_fd_++;
  open_[number] = {inode.ino, flags, 0};
  ++opens_[inode.ino];
  return BackingFd(*this, number);
}

void MemoryBacking::Close(int number) {
  if (before_close_) before_close_();
  absl::MutexLock lock(&mu_);
  const auto open = open_.find(number);
  if (open == open_.end()) return;  // ended by a power cut
  const ino_t ino = open->second.ino;
  open_.erase(open);
  if (--opens_[ino] == 0) opens_.erase(ino);
  Collect(ino);
}

void MemoryBacking::Collect(ino_t ino) {
  const auto found = now_.inodes.find(ino);
  if (found == now_.inodes.end() || found->second.links > 0 || opens_.count(ino) > 0) return;
  now_.used_blocks -= found->second.data.blocks();
  now_.inodes.erase(found);
}

absl::StatusOr<BackingFd> MemoryBacking::OpenAt(int dirfd, const std::string& name, int flags) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kOpen));
  if (name.empty()) return Error(ENOENT, "open");
  SALIUS_ASSIGN_OR_RETURN(const Inode* const inode, Walk(dirfd, name));
  return OpenInode(*inode, flags);
}

absl::StatusOr<BackingFd> MemoryBacking::CreateAt(int dirfd, const std::string& name, int flags,
                                                  mode_t mode) {
  absl::MutexLock lock(&mu_);
  const absl::StatusOr<Inode*> there = Walk(dirfd, name);
  if (absl::IsNotFound(there.status())) {
    SALIUS_ASSIGN_OR_RETURN(const Inode* const made, Make(dirfd, name, S_IFREG | (mode & 07777)));
    return OpenInode(*made, flags);
  }
  SALIUS_RETURN_IF_ERROR(Begin(Call::kOpen));
  SALIUS_RETURN_IF_ERROR(there.status());
  if ((flags & O_EXCL) != 0) return Error(EEXIST, name);
  Inode& inode = **there;
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, OpenInode(inode, flags));
  if ((flags & O_TRUNC) != 0) {
    now_.used_blocks -= inode.data.blocks();
    inode.data.Resize(0);
    NoteDataChange(inode);
  }
  return fd;
}

absl::Status MemoryBacking::Lock(int fd, std::string_view what) {
  absl::MutexLock lock(&mu_);
  Open* const own = Find(fd);
  if (own == nullptr || (own->flags & O_PATH) != 0) return Error(EBADF, what);
  for (const auto& [number, open] : open_) {
    if (number != fd && open.ino == own->ino && open.locked) {
      return absl::UnavailableError("locked by another descriptor");
    }
  }
  own->locked = true;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> MemoryBacking::ComplaintsOf(int) {
  return absl::UnimplementedError("no complaints are counted");
}

absl::StatusOr<uint64_t> MemoryBacking::MountIdOf(int) {
  return absl::UnimplementedError("the mount has no identity");
}

absl::StatusOr<BackingFd> MemoryBacking::OpenChild(int dirfd, const std::string& name) {
  return OpenAt(dirfd, name, O_PATH | O_NOFOLLOW);
}

absl::StatusOr<BackingFd> MemoryBacking::OpenTmpFile(int dirfd) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kMake));
  SALIUS_ASSIGN_OR_RETURN(const Inode* const dir, Walk(dirfd, "."));
  SALIUS_ASSIGN_OR_RETURN(Inode* const inode, NewInode(*dir, S_IFREG | 0600));
  inode->linkable = true;
  return OpenInode(*inode, O_RDWR);
}

absl::StatusOr<BackingFd> MemoryBacking::Reopen(int fd, int flags) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kOpen));
  const Inode* const inode = FindInode(fd);
  if (inode == nullptr) return Error(EBADF, "open");
  return OpenInode(*inode, flags);
}

absl::StatusOr<FileHandle> MemoryBacking::HandleOf(int fd) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kStat));
  const Inode* const inode = FindInode(fd);
  if (inode == nullptr) return Error(EBADF, "file handle");
  FileHandle handle{.type = 1, .bytes = std::string(8, '\0')};
  StoreU64(handle.bytes.data(), inode->ino);
  return handle;
}

absl::StatusOr<BackingFd> MemoryBacking::OpenByHandle(int mount_fd, const FileHandle& handle,
                                                      int flags) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kOpen));
  if (Find(mount_fd) == nullptr) return Error(EBADF, "open by handle");
  if (handle.bytes.size() != 8) return Error(ESTALE, "open by handle");
  const auto found = now_.inodes.find(LoadU64(handle.bytes.data()));
  if (found == now_.inodes.end()) return Error(ESTALE, "open by handle");
  return OpenInode(found->second, flags);
}

void MemoryBacking::SetNoAtime(int fd, bool noatime) {
  absl::MutexLock lock(&mu_);
  Open* const open = Find(fd);
  if (open != nullptr) open->flags = (open->flags & ~O_NOATIME) | (noatime ? O_NOATIME : 0);
}

// ---- Attributes

timespec MemoryBacking::Tick() {
  ++now_us_;
  return {.tv_sec = now_us_ / 1'000'000, .tv_nsec = now_us_ % 1'000'000 * 1000};
}

void MemoryBacking::AdvanceTo(const timespec& time) {
  absl::MutexLock lock(&mu_);
  now_us_ = std::max(now_us_, int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1000);
}

struct stat MemoryBacking::StatOf(const Inode& inode) const {
  struct stat st {};
  st.st_dev = kDevice;
  st.st_ino = inode.ino;
  st.st_mode = inode.mode;
  st.st_nlink = inode.links;
  st.st_uid = inode.uid;
  st.st_gid = inode.gid;
  st.st_rdev = inode.device;
  const uint64_t size = S_ISLNK(inode.mode)   ? inode.target.size()
                        : S_ISDIR(inode.mode) ? options_.block_bytes
                                              : inode.data.size();
  st.st_size = static_cast<off_t>(size);
  st.st_blksize = static_cast<blksize_t>(options_.block_bytes);
  st.st_blocks = static_cast<blkcnt_t>(inode.data.blocks() * options_.block_bytes / 512);
  st.st_atim = inode.atime;
  st.st_mtim = inode.mtime;
  st.st_ctim = inode.ctime;
  return st;
}

absl::StatusOr<struct stat> MemoryBacking::Stat(int fd) { return StatAt(fd, ""); }

absl::StatusOr<struct stat> MemoryBacking::StatAt(int dirfd, const std::string& name) {
  const auto look = [&]() -> absl::StatusOr<struct stat> {
    absl::MutexLock lock(&mu_);
    SALIUS_RETURN_IF_ERROR(Begin(Call::kStat));
    SALIUS_ASSIGN_OR_RETURN(const Inode* const inode, Walk(dirfd, name));
    return StatOf(*inode);
  };
  const absl::StatusOr<struct stat> attributes = look();
  if (after_stat_) after_stat_();
  return attributes;
}

absl::StatusOr<std::optional<timespec>> MemoryBacking::BirthTimeOf(int fd) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kStat));
  const Inode* const inode = FindInode(fd);
  if (inode == nullptr) return Error(EBADF, "birth time");
  return std::optional<timespec>(inode->btime);
}

absl::StatusOr<fs::ChangeMarks> MemoryBacking::ChangeMarksOf(int fd) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kStat));
  const Inode* const inode = FindInode(fd);
  if (inode == nullptr) return Error(EBADF, "marks");
  return inode->marks;
}

absl::StatusOr<bool> MemoryBacking::IsSyncDir(int dirfd) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kStat));
  const Inode* const inode = FindInode(dirfd);
  if (inode == nullptr) return Error(EBADF, "marks");
  return inode->dirsync;
}

absl::Status MemoryBacking::InheritSync(int from, int dirfd) {
  absl::MutexLock lock(&mu_);
  const Inode* const parent = FindInode(from);
  Inode* const inode = FindInode(dirfd);
  if (parent == nullptr || inode == nullptr) return Error(EBADF, "marks");
  inode->dirsync = inode->dirsync || parent->dirsync;
  return absl::OkStatus();
}

absl::StatusOr<std::string> MemoryBacking::PathOf(int fd) {
  absl::MutexLock lock(&mu_);
  const Inode* inode = FindInode(fd);
  if (inode == nullptr) return Error(EBADF, "path of a descriptor");
  std::string path;
  while (inode->ino != kRootIno) {
    const ino_t ino = inode->ino;
    const Inode* parent = nullptr;
    for (const auto& [number, dir] : now_.inodes) {
      for (const auto& [name, entry] : dir.entries) {
        if (entry.ino != ino || parent != nullptr) continue;
        parent = &dir;
        path = "/" + name + path;
      }
    }
    if (parent == nullptr) return "/memory/?" + path + " (deleted)";
    inode = parent;
  }
  return "/memory" + path;
}

absl::StatusOr<std::string> MemoryBacking::ReadLinkOf(int fd) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kStat));
  const Inode* const inode = FindInode(fd);
  if (inode == nullptr) return Error(EBADF, "readlink");
  // readlinkat(2) with an empty name says so for another type.
  if (!S_ISLNK(inode->mode)) return Error(ENOENT, "readlink");
  return inode->target;
}

absl::StatusOr<MemoryBacking::Inode*> MemoryBacking::Changeable(int fd, const char* what) {
  SALIUS_RETURN_IF_ERROR(Begin(Call::kSetAttr));
  Inode* const inode = FindInode(fd);
  if (inode == nullptr) return Error(EBADF, what);
  if (inode->is_marked()) return Error(EPERM, what);
  return inode;
}

absl::Status MemoryBacking::Chown(int fd, uid_t uid, gid_t gid) {
  absl::MutexLock lock(&mu_);
  SALIUS_ASSIGN_OR_RETURN(Inode* const inode, Changeable(fd, "chown"));
  if (uid != static_cast<uid_t>(-1)) inode->uid = uid;
  if (gid != static_cast<gid_t>(-1)) inode->gid = gid;
  if (!inode->is_dir()) {
    inode->mode &= ~static_cast<mode_t>(S_ISUID);
    if ((inode->mode & S_IXGRP) != 0) inode->mode &= ~static_cast<mode_t>(S_ISGID);
    inode->xattrs.erase(kCapabilityXattr);
  }
  inode->ctime = Tick();
  return absl::OkStatus();
}

absl::Status MemoryBacking::Chmod(int fd, mode_t mode) {
  absl::MutexLock lock(&mu_);
  SALIUS_ASSIGN_OR_RETURN(Inode* const inode, Changeable(fd, "chmod"));
  if (S_ISLNK(inode->mode)) return Error(EOPNOTSUPP, "chmod");
  inode->mode = (inode->mode & S_IFMT) | (mode & 07777);
  const auto acl = inode->xattrs.find(kAccessAclXattr);
  if (acl != inode->xattrs.end()) ChmodAcl(acl->second, mode);
  inode->ctime = Tick();
  return absl::OkStatus();
}

absl::Status MemoryBacking::SetTimes(int fd, const timespec times[2]) {
  if (before_times_) before_times_();
  absl::MutexLock lock(&mu_);
  for (int i = 0; i < 2; ++i) {
    const long ns = times[i].tv_nsec;
    const bool special = ns == UTIME_OMIT || ns == UTIME_NOW;
    if (!special && (ns < 0 || ns > 999'999'999)) return Error(EINVAL, "utimensat");
  }
  SALIUS_ASSIGN_OR_RETURN(Inode* const inode, Changeable(fd, "utimensat"));
  inode->ctime = Tick();
  for (int i = 0; i < 2; ++i) {
    if (times[i].tv_nsec == UTIME_OMIT) continue;
    (i == 0 ? inode->atime : inode->mtime) =
        times[i].tv_nsec == UTIME_NOW ? inode->ctime : times[i];
  }
  return absl::OkStatus();
}

timespec MemoryBacking::FileTimeNow(int) {
  absl::MutexLock lock(&mu_);
  return Tick();
}

// ---- Extended attributes

absl::Status MemoryBacking::CheckXattr(const Inode& inode, const std::string& name) const {
  if (name.empty() || name.size() > kMaxXattrName) return Error(ERANGE, name);
  if (IsAcl(name)) {
    return options_.acls && !S_ISLNK(inode.mode) ? absl::OkStatus() : Error(EOPNOTSUPP, name);
  }
  const bool known = absl::StartsWith(name, "user.") || absl::StartsWith(name, "trusted.") ||
                     absl::StartsWith(name, "security.");
  return known ? absl::OkStatus() : Error(EOPNOTSUPP, name);
}

absl::StatusOr<std::string> MemoryBacking::XattrValue(int fd, const std::string& name) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kGetXattr));
  const Inode* const inode = FindInode(fd);
  if (inode == nullptr) return Error(EBADF, "getxattr");
  SALIUS_RETURN_IF_ERROR(CheckXattr(*inode, name));
  const auto found = inode->xattrs.find(name);
  if (found == inode->xattrs.end()) return Error(ENODATA, "getxattr " + name);
  return found->second;
}

absl::StatusOr<std::vector<std::string>> MemoryBacking::XattrNames(int fd) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kGetXattr));
  const Inode* const inode = FindInode(fd);
  if (inode == nullptr) return Error(EBADF, "listxattr");
  std::vector<std::string> names;
  for (const auto& [name, value] : inode->xattrs) names.push_back(name);
  return names;
}

absl::Status MemoryBacking::StoreAcl(Inode& inode, const std::string& name,
                                     std::string_view value) {
  const bool version = value.size() >= kAclHeaderBytes && LoadU32(value.data()) == kAclVersion;
  if (value.size() >= kAclHeaderBytes && !version) return Error(EOPNOTSUPP, name);
  const std::optional<mode_t> mode = ModeOfAcl(value);
  if (!mode.has_value()) return Error(EINVAL, name);
  if (name == kDefaultAclXattr) {
    if (!inode.is_dir()) return Error(EACCES, name);
    inode.xattrs[name] = std::string(value);
    return absl::OkStatus();
  }
  inode.mode = (inode.mode & ~mode_t{0777}) | *mode;
  // An ACL of three entries says what the mode says.
  if (value.size() == kAclHeaderBytes + 3 * kAclEntryBytes) {
    inode.xattrs.erase(name);
  } else {
    inode.xattrs[name] = std::string(value);
  }
  return absl::OkStatus();
}

absl::Status MemoryBacking::SetXattr(int fd, const std::string& name, std::string_view value) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kSetXattr));
  Inode* const inode = FindInode(fd);
  if (inode == nullptr) return Error(EBADF, "setxattr");
  if (value.size() > kMaxXattrValue) return Error(E2BIG, name);
  if (inode->is_marked()) return Error(EPERM, name);
  SALIUS_RETURN_IF_ERROR(CheckXattr(*inode, name));
  if (absl::StartsWith(name, "user.") && !inode->is_dir() && !S_ISREG(inode->mode)) {
    return Error(EPERM, name);
  }
  size_t bytes = name.size() + value.size();
  for (const auto& [other, kept] : inode->xattrs) {
    if (other != name) bytes += other.size() + kept.size();
  }
  if (bytes > options_.max_xattr_bytes) return Error(ENOSPC, name);
  if (IsAcl(name)) {
    SALIUS_RETURN_IF_ERROR(StoreAcl(*inode, name, value));
  } else {
    inode->xattrs[name] = std::string(value);
  }
  inode->ctime = Tick();
  return absl::OkStatus();
}

absl::Status MemoryBacking::RemoveXattr(int fd, const std::string& name) {
  absl::MutexLock lock(&mu_);
  SALIUS_RETURN_IF_ERROR(Begin(Call::kSetXattr));
  Inode* const inode = FindInode(fd);
  if (inode == nullptr) return Error(EBADF, "removexattr");
  if (inode->is_marked()) return Error(EPERM, name);
  SALIUS_RETURN_IF_ERROR(CheckXattr(*inode, name));
  if (inode->xattrs.erase(name) > 0) inode->ctime = Tick();
  return absl::OkStatus();
}

}  // namespace salius
