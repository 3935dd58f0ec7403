#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/check.h"
#include "common/strings.h"

namespace salius {
namespace {

constexpr char kErrnoPayload[] = "salius/errno";

// Repeats a system call that a signal interrupted.
template <typename Call>
auto RetryEintr(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

absl::StatusCode CodeOf(int err) {
  switch (err) {
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return absl::StatusCode::kResourceExhausted;
    case EFBIG:
      return absl::StatusCode::kOutOfRange;
    case EIO:
      return absl::StatusCode::kInternal;
    case ESTALE:
      return absl::StatusCode::kNotFound;
    case EOPNOTSUPP:
    case ENOSYS:
      return absl::StatusCode::kUnimplemented;
    case EINVAL:
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::ErrnoToStatusCode(err);
  }
}

// Returns the file's bytes up to its end, at most max_bytes.
absl::StatusOr<std::string> ReadToEnd(int fd, std::string_view what, size_t max_bytes) {
  std::string content;
  // Files of /proc have no size, so read until a read returns nothing.
  constexpr size_t kLargestChunk = 64 * 1024;
  for (size_t chunk = 1024;; chunk = std::min(2 * chunk, kLargestChunk)) {
    const size_t old_size = content.size();
    content.resize(old_size + chunk);
    const ssize_t got = RetryEintr([&] { return read(fd, content.data() + old_size, chunk); });
    if (got < 0) return ErrnoStatus(errno, absl::StrFormat("read %s", what));
    content.resize(old_size + static_cast<size_t>(got));
    if (got == 0) return content;
    if (content.size() > max_bytes) {
      return ErrnoStatus(EFBIG, absl::StrFormat("read %s: over %d bytes", what, max_bytes));
    }
  }
}

// Writes, syncs and closes the temporary file of WriteFileAtomically().
absl::Status WriteNewFile(int dirfd, const std::string& name, absl::Span<const uint8_t> bytes,
                          mode_t mode) {
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd,
                          OpenAt(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode));
  SALIUS_RETURN_IF_ERROR(PwriteFull(fd.get(), bytes, 0));
  SALIUS_RETURN_IF_ERROR(FsyncFd(fd.get()));
  return fd.Close();
}

// Returns the error in errno of a call with this descriptor, and names the descriptor's path.
absl::Status FdError(std::string_view what, int fd) {
  const int error = errno;
  return AtPath(ErrnoStatus(error, what), PathOfFd(fd));
}

// The argument of name_to_handle_at() and open_by_handle_at(): the kernel's struct with room for
// bytes.
struct HandleBuffer {
  alignas(file_handle) char memory[sizeof(file_handle) + MAX_HANDLE_SZ] = {};
  file_handle* get() { return reinterpret_cast<file_handle*>(memory); }
  char* bytes() { return memory + offsetof(file_handle, f_handle); }
};

}  // namespace

absl::Status ErrnoStatus(int err, std::string_view what) {
  SALIUS_CHECK(err > 0) << "no error in: " << what;
  char buffer[128];
  const char* text = strerror_r(err, buffer, sizeof(buffer));  // GNU: returns the text.
  absl::Status status(CodeOf(err), absl::StrFormat("%s: %s", what, text));
  status.SetPayload(kErrnoPayload, absl::Cord(absl::StrFormat("%d", err)));
  return status;
}

std::string PathOfFd(int fd) {
  char path[PATH_MAX + 1];
  const ssize_t size =
      readlink(absl::StrFormat("/proc/self/fd/%d", fd).c_str(), path, sizeof(path));
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : "";
}

std::string PathAt(int dirfd, std::string_view name) {
  if (dirfd == AT_FDCWD || (!name.empty() && name[0] == '/')) return std::string(name);
  std::string path = PathOfFd(dirfd);
  if (path.empty()) return std::string(name);
  if (!name.empty() && name != ".") absl::StrAppendFormat(&path, "/%s", name);
  return path;
}

absl::Status AtPath(const absl::Status& status, std::string_view path) {
  if (status.ok() || path.empty() || absl::StrContains(status.message(), Av(path))) return status;
  absl::Status named(status.code(), absl::StrFormat("%s: %s", path, status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& value) { named.SetPayload(url, value); });
  return named;
}

int StatusErrno(const absl::Status& status) {
  if (status.ok()) return 0;
  if (const auto payload = status.GetPayload(kErrnoPayload); payload.has_value()) {
    int err = 0;
    if (absl::SimpleAtoi(std::string(*payload), &err) && err > 0) return err;
  }
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return ENOENT;
    case absl::StatusCode::kAlreadyExists:
      return EEXIST;
    case absl::StatusCode::kResourceExhausted:
      return ENOSPC;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return EACCES;
    case absl::StatusCode::kInvalidArgument:
      return EINVAL;
    case absl::StatusCode::kOutOfRange:
      return EFBIG;
    case absl::StatusCode::kUnimplemented:
      return EOPNOTSUPP;
    case absl::StatusCode::kCancelled:
      return EINTR;
    case absl::StatusCode::kAborted:
      return EAGAIN;
    default:
      // UNAVAILABLE, DEADLINE_EXCEEDED, FAILED_PRECONDITION, DATA_LOSS, INTERNAL, UNKNOWN: the
      // outcome is bad or unknown, and a retry by the caller must not look safe.
      return EIO;
  }
}

void UniqueFd::Reset(int fd) {
  if (fd_ >= 0) {
    const int saved = errno;
    close(fd_);
    errno = saved;
  }
  fd_ = fd;
}

absl::Status UniqueFd::Close() {
  if (fd_ < 0) return absl::OkStatus();
  // After EINTR the descriptor is closed on Linux; another close could hit another owner's.
  if (close(Release()) != 0 && errno != EINTR) return ErrnoStatus(errno, "close");
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> OpenAt(int dirfd, std::string_view path, int flags, mode_t mode) {
  const std::string name(path);
  const int fd = RetryEintr([&] { return openat(dirfd, name.c_str(), flags | O_CLOEXEC, mode); });
  if (fd < 0) {
    const int error = errno;
    return ErrnoStatus(error, absl::StrFormat("open %s", PathAt(dirfd, path)));
  }
  return UniqueFd(fd);
}

absl::Status MkdirAt(int dirfd, std::string_view path, mode_t mode) {
  const std::string name(path);
  if (mkdirat(dirfd, name.c_str(), mode) != 0) {
    const int error = errno;
    return ErrnoStatus(error, absl::StrFormat("mkdir %s", PathAt(dirfd, path)));
  }
  return absl::OkStatus();
}

absl::Status MakeDirs(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const absl::Status made = MkdirAt(AT_FDCWD, path.substr(0, end), 0755);
    if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
    if (end == std::string::npos) return absl::OkStatus();
  }
}

absl::Status MakeOwnDirs(const std::string& path) {
  SALIUS_RETURN_IF_ERROR(MakeDirs(path));
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd dir, OpenAt(AT_FDCWD, path, O_RDONLY | O_DIRECTORY));
  struct stat st;
  if (fstat(dir.get(), &st) != 0) return ErrnoStatus(errno, path);
  if (st.st_uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s belongs to user %d; remove it", path, st.st_uid));
  }
  constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
  if ((st.st_mode & kOthersWrite) == 0) return absl::OkStatus();
  return fchmod(dir.get(), st.st_mode & 07777 & ~kOthersWrite) == 0 ? absl::OkStatus()
                                                                    : ErrnoStatus(errno, path);
}

absl::StatusOr<size_t> PreadFull(int fd, void* buf, size_t n, int64_t off) {
  size_t done = 0;
  while (done < n) {
    const ssize_t got = RetryEintr([&] {
      return pread(fd, static_cast<char*>(buf) + done, n - done, off + static_cast<off_t>(done));
    });
    if (got < 0) return FdError(absl::StrFormat("pread %d bytes at %d", n, off), fd);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

absl::Status PwriteFull(int fd, absl::Span<const uint8_t> bytes, int64_t off) {
  const iovec part = {const_cast<uint8_t*>(bytes.data()), bytes.size()};
  return PwritevFull(fd, {&part, 1}, off);
}

absl::Status PwritevFull(int fd, absl::Span<const iovec> parts, int64_t off, int flags) {
  std::vector<iovec> rest(parts.begin(), parts.end());
  size_t first = 0;
  while (true) {
    while (first < rest.size() && rest[first].iov_len == 0) ++first;
    if (first == rest.size()) return absl::OkStatus();
    const int count = static_cast<int>(std::min<size_t>(rest.size() - first, IOV_MAX));
    const ssize_t put =
        RetryEintr([&] { return pwritev2(fd, rest.data() + first, count, off, flags); });
    if (put < 0) return FdError(absl::StrFormat("pwrite at %d", off), fd);
    // A call that writes nothing and returns no error would loop for ever.
    if (put == 0) return ErrnoStatus(EIO, absl::StrFormat("pwrite at %d wrote nothing", off));
    off += put;
    for (size_t left = static_cast<size_t>(put); left > 0;) {
      iovec& part = rest[first];
      const size_t taken = std::min(left, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + taken;
      part.iov_len -= taken;
      left -= taken;
      if (part.iov_len == 0) ++first;
    }
  }
}

absl::Status FsyncFd(int fd) {
  if (RetryEintr([&] { return fsync(fd); }) != 0) return FdError("fsync", fd);
  return absl::OkStatus();
}

absl::Status FdatasyncFd(int fd) {
  if (RetryEintr([&] { return fdatasync(fd); }) != 0) return FdError("fdatasync", fd);
  return absl::OkStatus();
}

absl::Status SyncFs(int fd) {
  if (RetryEintr([&] { return syncfs(fd); }) != 0) return FdError("syncfs", fd);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWholeFile(int dirfd, std::string_view path, size_t max_bytes) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(dirfd, path, O_RDONLY));
  const absl::StatusOr<std::string> content = ReadToEnd(fd.get(), path, max_bytes);
  return content.ok() ? content : AtPath(content.status(), PathAt(dirfd, path));
}

absl::StatusOr<std::string> ReadWholeFile(std::string_view path) {
  return ReadWholeFile(AT_FDCWD, path);
}

absl::Status WriteFileAtomically(int dirfd, std::string_view name, absl::Span<const uint8_t> bytes,
                                 mode_t mode) {
  if (name.empty() || name.find('/') != std::string_view::npos) {
    return ErrnoStatus(EINVAL, absl::StrFormat("write \"%s\": not a plain name", name));
  }
  const std::string final_name(name);
  const std::string temporary = final_name + ".tmp";
  absl::Status status = WriteNewFile(dirfd, temporary, bytes, mode);
  if (status.ok() && renameat(dirfd, temporary.c_str(), dirfd, final_name.c_str()) != 0) {
    status = ErrnoStatus(errno, absl::StrFormat("rename %s to %s", temporary, final_name));
  }
  if (!status.ok()) {
    unlinkat(dirfd, temporary.c_str(), 0);
    return AtPath(status, PathAt(dirfd, final_name));
  }
  // `dirfd` may be O_PATH or AT_FDCWD, which fsync refuses.
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd dir, OpenAt(dirfd, ".", O_RDONLY | O_DIRECTORY));
  return FsyncFd(dir.get());
}

absl::StatusOr<uint64_t> FileSize(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0) return FdError("fstat", fd);
  return static_cast<uint64_t>(st.st_size);
}

absl::StatusOr<FsSpace> StatfsFree(int fd) {
  struct statvfs st;
  if (RetryEintr([&] { return fstatvfs(fd, &st); }) != 0) return FdError("fstatvfs", fd);
  FsSpace space;
  space.bytes_total = uint64_t{st.f_blocks} * st.f_frsize;
  space.bytes_free = uint64_t{st.f_bfree} * st.f_frsize;
  space.bytes_avail = uint64_t{st.f_bavail} * st.f_frsize;
  space.inodes_free = st.f_ffree;
  space.inodes_total = st.f_files;
  return space;
}

absl::Status LockExclusive(int fd, std::string_view what) {
  if (RetryEintr([&] { return flock(fd, LOCK_EX | LOCK_NB); }) == 0) return absl::OkStatus();
  if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrFormat("flock %s", what));
  return absl::UnavailableError(absl::StrFormat("%s is locked: another process is using it", what));
}

absl::StatusOr<FileHandle> HandleOf(int dirfd, std::string_view path, int flags) {
  const std::string name(path);
  HandleBuffer buffer;
  buffer.get()->handle_bytes = MAX_HANDLE_SZ;
  int mount_id;
  if (name_to_handle_at(dirfd, name.c_str(), buffer.get(), &mount_id, flags) != 0) {
    return ErrnoStatus(errno, absl::StrFormat("name_to_handle_at \"%s\"", name));
  }
  FileHandle handle;
  handle.type = buffer.get()->handle_type;
  handle.bytes.assign(buffer.bytes(), buffer.get()->handle_bytes);
  return handle;
}

absl::StatusOr<UniqueFd> OpenByHandle(int mount_fd, const FileHandle& handle, int flags) {
  if (handle.bytes.size() > MAX_HANDLE_SZ) {
    return ErrnoStatus(EINVAL, absl::StrFormat("file handle of %d bytes", handle.bytes.size()));
  }
  HandleBuffer buffer;
  buffer.get()->handle_bytes = static_cast<unsigned>(handle.bytes.size());
  buffer.get()->handle_type = handle.type;
  std::memcpy(buffer.bytes(), handle.bytes.data(), handle.bytes.size());
  const auto open = [&] {
    return RetryEintr([&] { return open_by_handle_at(mount_fd, buffer.get(), flags | O_CLOEXEC); });
  };
  int fd = open();
  // ext4 answers ENOMEM, where it means ESTALE, while the inode's number is being given to a new
  // file (Linux: iget_locked() of an inode with I_CREATING). That takes microseconds, or as long as
  // its creator waits for a CPU. A memory that is full stays full.
  for (int tries = 0; fd < 0 && errno == ENOMEM && tries < 1000; ++tries) {
    absl::SleepFor(absl::Milliseconds(1));
    fd = open();
  }
  if (fd < 0) return ErrnoStatus(errno, "open_by_handle_at");
  return UniqueFd(fd);
}

}  // namespace salius
