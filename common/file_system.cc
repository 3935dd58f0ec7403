#include "common/file_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
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
