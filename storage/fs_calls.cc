#include "storage/fs_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace salius::fs {
namespace {

// Returns the errno of a call on `name` in `fd`, or on `fd` itself: the call, and the path.
absl::Status Error(std::string_view what, int fd, std::string_view name = "") {
  const int error = errno;
  return AtPath(ErrnoStatus(error, what), PathAt(fd, name));
}

// Returns OK for 0, otherwise that error.
absl::Status Result(int result, std::string_view what, int fd, std::string_view name = "") {
  return result == 0 ? absl::OkStatus() : Error(what, fd, name);
}

uint32_t TypeBits(unsigned char d_type) {
  return d_type == DT_UNKNOWN ? 0 : static_cast<uint32_t>(DTTOIF(d_type));
}

// Returns the marks of chattr(1); 0 where the file system has none.
int MarksOf(int fd) {
  int marks = 0;
  return ioctl(fd, FS_IOC_GETFLAGS, &marks) == 0 ? marks : 0;
}

}  // namespace

absl::StatusOr<std::string> ProcPath(int fd) {
  if (fd < 0) return ErrnoStatus(EBADF, "/proc/self/fd");
  return absl::StrFormat("/proc/self/fd/%d", fd);
}

absl::StatusOr<UniqueFd> OpenChild(int dirfd, const std::string& name) {
  struct open_how how {};
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_NO_XDEV;
  const long fd = syscall(SYS_openat2, dirfd, name.c_str(), &how, sizeof(how));
  if (fd < 0) return ErrnoStatus(errno, name);
  return UniqueFd(static_cast<int>(fd));
}

absl::StatusOr<std::string> PathOf(int fd) {
  std::string path(8192, '\0');  // the kernel builds at most a page
  SALIUS_ASSIGN_OR_RETURN(const std::string link, ProcPath(fd));
  const ssize_t size = readlink(link.c_str(), path.data(), path.size());
  if (size < 0) return ErrnoStatus(errno, "path of a descriptor");
  path.resize(static_cast<size_t>(size));
  return path;
}

absl::StatusOr<ChangeMarks> ChangeMarksOf(int fd) {
  struct statx st;
  if (statx(fd, "", AT_EMPTY_PATH, 0, &st) != 0) return ErrnoStatus(errno, "statx");
  return ChangeMarks{(st.stx_attributes & STATX_ATTR_IMMUTABLE) != 0,
                     (st.stx_attributes & STATX_ATTR_APPEND) != 0};
}

absl::StatusOr<std::optional<timespec>> BirthTimeOf(int fd) {
  struct statx st;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &st) != 0) return ErrnoStatus(errno, "statx");
  if ((st.stx_mask & STATX_BTIME) == 0) return std::optional<timespec>();
  return std::optional<timespec>(timespec{st.stx_btime.tv_sec, st.stx_btime.tv_nsec});
}

absl::StatusOr<struct stat> StatAt(int dirfd, const std::string& name) {
  struct stat st;
  if (fstatat(dirfd, name.c_str(), &st, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) {
    // Each new name is looked for: no look for the directory's path.
    if (errno == ENOENT) return ErrnoStatus(ENOENT, "stat \"" + name + "\"");
    return Error("stat \"" + name + "\"", dirfd, name);
  }
  return st;
}

absl::StatusOr<std::string> XattrValue(int fd, const std::string& name) {
  SALIUS_ASSIGN_OR_RETURN(const std::string path, ProcPath(fd));
  char small[512];
  ssize_t size = getxattr(path.c_str(), name.c_str(), small, sizeof(small));
  if (size >= 0) return std::string(small, static_cast<size_t>(size));
  std::string value;
  if (errno == ERANGE) {
    value.resize(65536);  // XATTR_SIZE_MAX
    size = getxattr(path.c_str(), name.c_str(), value.data(), value.size());
  }
  // Most callers ask for what is missing: no look for the path.
  if (size < 0 && errno == ENODATA) return ErrnoStatus(ENODATA, "getxattr " + name);
  if (size < 0) return Error("getxattr " + name, fd);
  value.resize(static_cast<size_t>(size));
  return value;
}

absl::StatusOr<std::string> GetXattr(int fd, const std::string& name, bool* found) {
  absl::StatusOr<std::string> value = XattrValue(fd, name);
  *found = value.ok();
  if (StatusErrno(value.status()) == ENODATA) return std::string();
  return value;
}

absl::StatusOr<std::vector<std::string>> XattrNames(int fd) {
  SALIUS_ASSIGN_OR_RETURN(const std::string path, ProcPath(fd));
  std::string list(65536, '\0');  // XATTR_LIST_MAX
  const ssize_t size = listxattr(path.c_str(), list.data(), list.size());
  if (size < 0) {
    if (errno == EOPNOTSUPP) return std::vector<std::string>();
    return ErrnoStatus(errno, "listxattr");
  }
  std::vector<std::string> names;
  const size_t end = static_cast<size_t>(size);
  for (size_t at = 0; at < end;) {
    names.emplace_back(list.c_str() + at);
    at += names.back().size() + 1;
  }
  return names;
}

absl::Status SetXattr(int fd, const std::string& name, std::string_view value) {
  SALIUS_ASSIGN_OR_RETURN(const std::string path, ProcPath(fd));
  return Result(setxattr(path.c_str(), name.c_str(), value.data(), value.size(), 0),
                "setxattr " + name, fd);
}

absl::Status RemoveXattr(int fd, const std::string& name) {
  SALIUS_ASSIGN_OR_RETURN(const std::string path, ProcPath(fd));
  if (removexattr(path.c_str(), name.c_str()) == 0 || errno == ENODATA) {
    return absl::OkStatus();
  }
  return Error("removexattr " + name, fd);
}

absl::Status Chown(int fd, uid_t uid, gid_t gid) {
  return Result(fchownat(fd, "", uid, gid, AT_EMPTY_PATH), "chown", fd);
}

absl::Status Chmod(int fd, mode_t mode) {
  SALIUS_ASSIGN_OR_RETURN(const std::string path, ProcPath(fd));
  return Result(chmod(path.c_str(), mode), absl::StrFormat("chmod %o", mode), fd);
}

absl::Status SetTimes(int fd, const timespec times[2]) {
  return Result(utimensat(fd, "", times, AT_EMPTY_PATH), "utimensat", fd);
}

absl::Status Truncate(int fd, uint64_t size) {
  if (size > static_cast<uint64_t>(INT64_MAX)) return ErrnoStatus(EFBIG, "ftruncate");
  return Result(ftruncate(fd, static_cast<off_t>(size)), absl::StrFormat("ftruncate to %d", size),
                fd);
}

absl::Status Fallocate(int fd, int mode, uint64_t offset, uint64_t length) {
  if (offset > static_cast<uint64_t>(INT64_MAX) || length > static_cast<uint64_t>(INT64_MAX)) {
    return ErrnoStatus(EFBIG, "fallocate");
  }
  int result;
  do {
    result = fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(length));
  } while (result != 0 && errno == EINTR);
  return Result(result, absl::StrFormat("fallocate mode %d, %d bytes at %d", mode, length, offset),
                fd);
}

absl::Status MakeNode(int dirfd, const std::string& name, mode_t mode, dev_t device) {
  return Result(mknodat(dirfd, name.c_str(), mode, device), "mknod " + name, dirfd, name);
}

absl::Status Symlink(const std::string& target, int dirfd, const std::string& name) {
  return Result(symlinkat(target.c_str(), dirfd, name.c_str()), "symlink " + name, dirfd, name);
}

absl::Status Unlink(int dirfd, const std::string& name, int flags) {
  return Result(unlinkat(dirfd, name.c_str(), flags), "unlink " + name, dirfd, name);
}

absl::Status LinkFd(int fd, int dirfd, const std::string& name) {
  return Result(linkat(fd, "", dirfd, name.c_str(), AT_EMPTY_PATH), "link to " + name, dirfd, name);
}

absl::Status Rename(int from_dirfd, const std::string& from, int to_dirfd, const std::string& to,
                    unsigned flags) {
  const int result = flags == 0 ? renameat(from_dirfd, from.c_str(), to_dirfd, to.c_str())
                                : renameat2(from_dirfd, from.c_str(), to_dirfd, to.c_str(), flags);
  return Result(result, "rename " + from + " to " + to, to_dirfd, to);
}

bool IsNotEmpty(const absl::Status& status) {
  const int error = StatusErrno(status);
  return error == ENOTEMPTY || error == EEXIST;
}

absl::StatusOr<std::string> RealPath(const std::string& path) {
  const auto release = [](char* memory) { free(memory); };
  const std::unique_ptr<char, decltype(release)> real(realpath(path.c_str(), nullptr), release);
  if (real == nullptr) return ErrnoStatus(errno, path);
  return std::string(real.get());
}

absl::StatusOr<struct stat> Stat(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0) return ErrnoStatus(errno, "fstat");
  return st;
}

absl::StatusOr<struct statvfs> StatVfs(int fd) {
  struct statvfs st;
  if (fstatvfs(fd, &st) != 0) return ErrnoStatus(errno, "fstatvfs");
  return st;
}

absl::StatusOr<std::string> ReadLinkOf(int fd) {
  std::string target(4096, '\0');  // PATH_MAX
  const ssize_t size = readlinkat(fd, "", target.data(), target.size());
  if (size < 0) return ErrnoStatus(errno, "readlink");
  target.resize(static_cast<size_t>(size));
  return target;
}

absl::StatusOr<std::vector<RawDirEntry>> ReadDirents(int fd) {
  alignas(dirent64) std::array<char, 32768> buffer;
  const ssize_t size = getdents64(fd, buffer.data(), buffer.size());
  if (size < 0) return ErrnoStatus(errno, "readdir");
  std::vector<RawDirEntry> entries;
  for (ssize_t at = 0; at < size;) {
    const auto* const raw = reinterpret_cast<const dirent64*>(buffer.data() + at);
    entries.push_back(
        {raw->d_name, static_cast<uint64_t>(raw->d_off), raw->d_ino, TypeBits(raw->d_type)});
    at += raw->d_reclen;
  }
  return entries;
}

absl::Status SeekDir(int fd, uint64_t offset) {
  if (lseek(fd, static_cast<off_t>(offset), SEEK_SET) < 0) return ErrnoStatus(errno, "seekdir");
  return absl::OkStatus();
}

absl::StatusOr<bool> IsEmptyDir(int dirfd) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(dirfd, ".", O_RDONLY | O_DIRECTORY));
  while (true) {
    SALIUS_ASSIGN_OR_RETURN(const std::vector<RawDirEntry> entries, ReadDirents(fd.get()));
    if (entries.empty()) return true;
    for (const RawDirEntry& entry : entries) {
      if (entry.name != "." && entry.name != "..") return false;
    }
  }
}

absl::StatusOr<bool> IsSyncDir(int dirfd) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(dirfd, ".", O_RDONLY | O_DIRECTORY));
  return (MarksOf(fd.get()) & (FS_SYNC_FL | FS_DIRSYNC_FL)) != 0;
}

absl::Status InheritSync(int from, int dirfd) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd parent, OpenAt(from, ".", O_RDONLY | O_DIRECTORY));
  const int marks = MarksOf(parent.get()) & (FS_SYNC_FL | FS_DIRSYNC_FL);
  if (marks == 0) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(dirfd, ".", O_RDONLY | O_DIRECTORY));
  int flags = 0;
  if (ioctl(fd.get(), FS_IOC_GETFLAGS, &flags) != 0) return ErrnoStatus(errno, "FS_IOC_GETFLAGS");
  if ((flags & marks) == marks) return absl::OkStatus();
  flags |= marks;
  if (ioctl(fd.get(), FS_IOC_SETFLAGS, &flags) != 0) return ErrnoStatus(errno, "FS_IOC_SETFLAGS");
  return absl::OkStatus();
}

absl::StatusOr<bool> IsPlainDir(int dirfd) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(dirfd, ".", O_RDONLY | O_DIRECTORY));
  if ((MarksOf(fd.get()) & (FS_CASEFOLD_FL | FS_ENCRYPT_FL)) != 0) return false;
  fsxattr extended{};
  if (ioctl(fd.get(), FS_IOC_FSGETXATTR, &extended) != 0) return true;
  return (extended.fsx_xflags & FS_XFLAG_PROJINHERIT) == 0;
}

namespace {

constexpr uint64_t kPage = 4096;

// Reads a byte of a page without waiting. Returns false when it is not in memory. Such a call has
// the kernel begin to read it.
bool ReadWithoutWait(int fd, uint64_t page) {
  char byte = 0;
  const iovec part = {&byte, 1};
  return preadv2(fd, &part, 1, static_cast<off_t>(page), RWF_NOWAIT) >= 0 || errno != EAGAIN;
}

}  // namespace

bool ArePagesCached(int fd, uint64_t offset, uint64_t length) {
  if (length == 0) return true;
  const uint64_t first = offset / kPage * kPage;
  const uint64_t last = (offset + length - 1) / kPage * kPage;
  // From linux/mman.h, which older systems do not have.
  constexpr long kCachestat = 451;
  const struct {
    uint64_t offset, length;
  } range = {first, last + kPage - first};
  struct {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } counts{};
  if (syscall(kCachestat, fd, &range, &counts, 0) == 0) {
    return counts.cached >= (range.length / kPage);
  }
  for (uint64_t page = first; page <= last; page += kPage) {
    if (!ReadWithoutWait(fd, page)) return false;
  }
  return true;
}

void BeginFetch(int fd, uint64_t offset, uint64_t length) {
  const uint64_t end = offset + length;
  for (uint64_t page = offset / kPage * kPage; page < end; page += kPage) ReadWithoutWait(fd, page);
}

absl::StatusOr<uint64_t> Seek(int fd, uint64_t offset, int whence) {
  const off_t found = lseek(fd, static_cast<off_t>(offset), whence);
  if (found < 0) return ErrnoStatus(errno, "lseek");
  return static_cast<uint64_t>(found);
}

timespec FileTimeNow(int scratch) {
  const timespec stamp[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
  struct stat st;
  if (futimens(scratch, stamp) == 0 && fstat(scratch, &st) == 0) return st.st_mtim;
  timespec now{};
  SALIUS_CHECK(clock_gettime(CLOCK_REALTIME_COARSE, &now) == 0);
  return now;
}

absl::StatusOr<UniqueFd> DuplicateFd(int fd) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return ErrnoStatus(errno, "duplicate a descriptor");
  return copy;
}

}  // namespace salius::fs
