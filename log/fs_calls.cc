#include "log/fs_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/check.h"

namespace salius::fs {
namespace {

// Returns the error in errno of a call on `name` in `fd`, or on `fd` itself. It names the call and
// the path.
absl::Status Error(std::string_view what, int fd, std::string_view name = "") {
  const int error = errno;
  return AtPath(ErrnoStatus(error, what), PathAt(fd, name));
}

// Returns OK for 0, otherwise that error.
absl::Status Result(int result, std::string_view what, int fd, std::string_view name = "") {
  return result == 0 ? absl::OkStatus() : Error(what, fd, name);
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
    return Error("stat \"" + name + "\"", dirfd, name);
  }
  return st;
}

absl::StatusOr<std::string> GetXattr(int fd, const std::string& name, bool* found) {
  SALIUS_ASSIGN_OR_RETURN(const std::string path, ProcPath(fd));
  std::string value(64, '\0');  // enough for a file id, the common case
  ssize_t size = getxattr(path.c_str(), name.c_str(), value.data(), value.size());
  if (size < 0 && errno == ERANGE) {
    value.resize(65536);  // XATTR_SIZE_MAX
    size = getxattr(path.c_str(), name.c_str(), value.data(), value.size());
  }
  *found = size >= 0;
  if (size < 0) {
    if (errno == ENODATA) return std::string();
    return Error("getxattr " + name, fd);
  }
  value.resize(static_cast<size_t>(size));
  return value;
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

absl::Status RenameNoReplace(int dirfd, const std::string& from, const std::string& to) {
  return Result(renameat2(dirfd, from.c_str(), dirfd, to.c_str(), RENAME_NOREPLACE),
                "rename " + from + " to " + to, dirfd, from);
}

absl::Status RenameExchange(int dirfd, const std::string& one, const std::string& other) {
  return Result(renameat2(dirfd, one.c_str(), dirfd, other.c_str(), RENAME_EXCHANGE),
                "exchange " + one + " and " + other, dirfd, one);
}

absl::StatusOr<std::vector<std::string>> ListDir(int dirfd) {
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, OpenAt(dirfd, ".", O_RDONLY | O_DIRECTORY));
  const auto close_dir = [](DIR* dir) { closedir(dir); };
  const std::unique_ptr<DIR, decltype(close_dir)> dir(fdopendir(fd.get()), close_dir);
  if (dir == nullptr) return ErrnoStatus(errno, "fdopendir");
  fd.Release();  // the DIR owns it now
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* const entry = readdir(dir.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) return ErrnoStatus(errno, "readdir");
  return names;
}

absl::Status RemoveTree(int dirfd, const std::string& name) {
  if (unlinkat(dirfd, name.c_str(), 0) == 0 || errno == ENOENT) return absl::OkStatus();
  if (errno != EISDIR && errno != EPERM) return Error("unlink " + name, dirfd, name);
  if (unlinkat(dirfd, name.c_str(), AT_REMOVEDIR) == 0) return absl::OkStatus();
  if (errno != ENOTEMPTY && errno != EEXIST) return Error("rmdir " + name, dirfd, name);
  {
    SALIUS_ASSIGN_OR_RETURN(const UniqueFd dir,
                            OpenAt(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW));
    SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(dir.get()));
    for (const std::string& inner : names) {
      SALIUS_RETURN_IF_ERROR(RemoveTree(dir.get(), inner));
    }
  }
  return Result(unlinkat(dirfd, name.c_str(), AT_REMOVEDIR), "rmdir " + name, dirfd, name);
}

absl::StatusOr<std::string> RealPath(const std::string& path) {
  const auto release = [](char* memory) { free(memory); };
  const std::unique_ptr<char, decltype(release)> real(realpath(path.c_str(), nullptr), release);
  if (real == nullptr) return ErrnoStatus(errno, path);
  return std::string(real.get());
}

namespace {

// Returns the options of the file system that `fd` lies on, as in /proc/self/mountinfo; empty when
// unknown.
std::string SuperOptions(int fd) {
  const absl::StatusOr<std::string> info =
      ReadWholeFile(absl::StrFormat("/proc/self/fdinfo/%d", fd));
  if (!info.ok()) return "";
  const absl::StatusOr<std::string> mounts = ReadWholeFile("/proc/self/mountinfo");
  if (!mounts.ok()) return "";
  std::string mount_id;
  for (const absl::string_view line : absl::StrSplit(*info, '\n')) {
    if (absl::StartsWith(line, "mnt_id:"))
      mount_id = std::string(absl::StripAsciiWhitespace(line.substr(7)));
  }
  for (const absl::string_view line : absl::StrSplit(*mounts, '\n')) {
    if (absl::StartsWith(line, mount_id + " "))
      return std::string(line.substr(line.rfind(' ') + 1));
  }
  return "";
}

}  // namespace

absl::StatusOr<FsKind> KindOf(int fd) {
  struct statfs st;
  if (fstatfs(fd, &st) != 0) return Error("fstatfs", fd);
  FsKind kind;
  kind.type = static_cast<int64_t>(st.f_type);
  kind.read_only = (st.f_flags & ST_RDONLY) != 0;
  for (const absl::string_view option : absl::StrSplit(SuperOptions(fd), ',')) {
    if (option == "nobarrier" || option == "barrier=0") kind.flushes_nothing = true;
    if (option == "data=journal") kind.journals_data = true;
  }
  return kind;
}

absl::StatusOr<void*> MapShared(int fd, size_t bytes) {
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return ErrnoStatus(errno, "mmap");
  return address;
}

void Unmap(void* address, size_t bytes) {
  // Fails only for an address that is not ours.
  SALIUS_CHECK(munmap(address, bytes) == 0);
}

void DropCache(int fd) { posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); }

}  // namespace salius::fs
