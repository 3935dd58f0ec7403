#include "tests/differential/side.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "tests/differential/evict.h"
#include "tests/differential/random.h"

namespace salius::differential {
namespace {

constexpr size_t kMostBytes = 80'000;
constexpr int64_t kPage = 4096;

Result ResultOf(int64_t returned) {
  if (returned < 0) return {.error = errno};
  return {.value = returned};
}

// Returns `length` bytes that follow from a seed.
const char* Content(uint64_t seed, size_t length) {
  static char buffer[kMostBytes + 8];
  Random random(seed);
  for (size_t i = 0; i < length; i += 8) {
    const uint64_t word = random.Next();
    memcpy(buffer + i, &word, sizeof(word));
  }
  return buffer;
}

bool IsDirectory(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

int64_t SizeOf(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 ? st.st_size : 0;
}

// Checks lseek(2) with SEEK_DATA or SEEK_HOLE. The places of holes are the file system's own matter,
// so the result is the error of an offset that is not in the file, or 0. EUCLEAN: the answer
// is wrong: data in a hole, or a place that is not in the file.
Result CheckSeek(int fd, int64_t offset, int whence) {
  const int64_t position = lseek(fd, 0, SEEK_CUR);
  const int64_t size = SizeOf(fd);
  const int64_t found = lseek(fd, offset, whence);
  const int error = errno;
  lseek(fd, position, SEEK_SET);
  if (offset < 0 || offset >= size) return {.error = found < 0 ? error : EUCLEAN};
  int64_t zeros_end = offset;  // the bytes before it are in a hole
  if (found < 0) {
    if (whence == SEEK_HOLE || error != ENXIO) return {.error = error};
    zeros_end = size;
  } else {
    if (found < offset || found > size) return {.error = EUCLEAN};
    if (whence == SEEK_DATA) zeros_end = found;
  }
  std::string bytes(static_cast<size_t>(zeros_end - offset), 'x');
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), offset);
  if (got < 0) return errno == EBADF ? Result() : ResultOf(got);  // open for writing only
  if (bytes.find_first_not_of('\0') != std::string::npos) return {.error = EUCLEAN};
  return {};
}

// To be called before a link: the kernel checks the mode that it remembers then
// (fs.protected_hardlinks), and does not ask a FUSE daemon whether a write took suid away.
void AskForMode(int fd, const char* path, int flags) {
  struct stat st;
  fstatat(fd, path, &st, flags);
}

}  // namespace

std::string TextOf(const Result& result) {
  std::string text =
      result.error != 0 ? strerrorname_np(result.error) : "ok " + std::to_string(result.value);
  if (result.data.empty()) return text;
  text += " \"";
  for (const char c : std::string_view(result.data).substr(0, 160)) {
    text += c >= ' ' && c <= '~' ? c : '?';
  }
  return text + "\" (" + std::to_string(result.data.size()) + " bytes, hash " +
         std::to_string(std::hash<std::string>()(result.data)) + ")";
}

bool ReadEntries(int fd, size_t bytes, std::vector<ListedEntry>* entries) {
  alignas(8) char buffer[32768];
  const long got = syscall(SYS_getdents64, fd, buffer, std::min(bytes, sizeof(buffer)));
  if (got < 0) return false;
  for (long at = 0; at < got;) {
    const auto* const entry = reinterpret_cast<const dirent64*>(buffer + at);
    entries->push_back({entry->d_name, entry->d_ino, entry->d_type, entry->d_off});
    at += entry->d_reclen;
  }
  return true;
}

int ListDirectory(int fd, std::map<std::string, ListedEntry>* entries) {
  if (lseek(fd, 0, SEEK_SET) < 0) return errno;
  while (true) {
    std::vector<ListedEntry> some;
    if (!ReadEntries(fd, 32768, &some)) return errno;
    if (some.empty()) return 0;
    for (ListedEntry& entry : some) {
      if (entry.name == "." || entry.name == "..") continue;
      // Twice the same name is no directory of any file system.
      if (entries->contains(entry.name)) return EUCLEAN;
      entries->emplace(entry.name, entry);
    }
  }
}

std::string SortedNames(const std::string& names) {
  std::vector<std::string> all;
  for (size_t at = 0; at < names.size(); at += all.back().size() + 1) {
    all.emplace_back(names.c_str() + at);
  }
  // How xfs keeps ACLs. It lists them for root; the mount does so for those that are applied.
  std::erase(all, "trusted.SGI_ACL_FILE");
  std::erase(all, "trusted.SGI_ACL_DEFAULT");
  std::sort(all.begin(), all.end());
  std::string sorted;
  for (const std::string& name : all) sorted += name + " ";
  return sorted;
}

const char* ProcPath(int base, const std::string& text) {
  static char path[8192];
  if (text.empty()) return "";
  snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", base, text.c_str());
  return path;
}

Side::Side(const std::string& top, const std::string& backing)
    : top_(open(top.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), backing_(backing) {
  if (top_ < 0) {
    perror(top.c_str());
    exit(2);
  }
  std::fill(std::begin(files_), std::end(files_), -1);
  std::fill(std::begin(directories_), std::end(directories_), -1);
}

Side::~Side() {
  close(top_);
  for (const int fd : files_) close(fd);
  for (const int fd : directories_) close(fd);
}

int Side::BaseOf(const Path& path) const {
  return path.base == kRoot ? top_ : directories_[path.base];
}

Result Side::Keep(int* slot, int fd) {
  if (fd < 0) return {.error = errno};
  if (*slot >= 0) close(*slot);
  *slot = fd;
  return {};
}

Result Side::Do(const Operation& o) {
  if (UsesFile(o.kind)) return DoFile(o, files_[o.slot]);
  const int base = BaseOf(o.path);
  switch (o.kind) {
    case Kind::kOpen:
    case Kind::kTmpFile:
      return Keep(&files_[o.slot], openat(base, o.path.text.c_str(), o.flags | O_CLOEXEC, o.mode));
    case Kind::kOpenDir:
      return Keep(&directories_[o.slot],
                  openat(base, o.path.text.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    case Kind::kClose: {
      const int fd = std::exchange(files_[o.slot], -1);
      return ResultOf(close(fd));
    }
    case Kind::kCloseDir: {
      const int fd = std::exchange(directories_[o.slot], -1);
      return ResultOf(close(fd));
    }
    case Kind::kSyncDir:
      return ResultOf(fsync(directories_[o.slot]));
    case Kind::kLinkFile:
      return LinkFile(o, base);
    case Kind::kEvict:
      Evict(files_[o.slot], backing_.empty() ? "" : backing_ + "/" + o.path.text);
      return {};
    case Kind::kSetXattr:
    case Kind::kGetXattr:
    case Kind::kListXattr:
    case Kind::kRemoveXattr:
      return DoXattr(o, base);
    case Kind::kChmod:
    case Kind::kChown:
    case Kind::kTimes:
    case Kind::kAccess:
    case Kind::kTruncate:
      return DoAttributes(o, base);
    default:
      return DoNames(o, base);
  }
}

Result Side::Transfer(const Operation& o, int fd) {
  const size_t length = static_cast<size_t>(o.length);
  if (o.kind == Kind::kWrite) return ResultOf(write(fd, Content(o.content, length), length));
  if (o.kind == Kind::kPwrite) {
    return ResultOf(pwrite(fd, Content(o.content, length), length, o.offset));
  }
  std::string data(length, '\0');
  Result result = ResultOf(o.kind == Kind::kRead ? read(fd, data.data(), length)
                                                 : pread(fd, data.data(), length, o.offset));
  data.resize(static_cast<size_t>(result.value));
  result.data = std::move(data);
  return result;
}

Result Side::TransferDirect(const Operation& o, int fd) {
  const int access = fcntl(fd, F_GETFL) & O_ACCMODE;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int direct = open(path.c_str(), access | O_DIRECT | O_CLOEXEC);
  if (direct < 0) return {.error = errno};
  const size_t length = static_cast<size_t>(o.length);
  void* const buffer = aligned_alloc(kPage, (length + kPage - 1) / kPage * kPage + kPage);
  Result result;
  if (o.kind == Kind::kDirectWrite) {
    memcpy(buffer, Content(o.content, length), length);
    result = ResultOf(pwrite(direct, buffer, length, o.offset));
  } else {
    result = ResultOf(pread(direct, buffer, length, o.offset));
    result.data.assign(static_cast<const char*>(buffer), static_cast<size_t>(result.value));
  }
  free(buffer);
  close(direct);
  return result;
}

// A map ends where the file ends, because an access beyond is a signal.
Result Side::Map(const Operation& o, int fd) {
  const int64_t size = SizeOf(fd);
  if (o.offset >= size || o.length == 0) return {};
  const size_t length = static_cast<size_t>(std::min(o.length, size - o.offset));
  const size_t skipped = static_cast<size_t>(o.offset % kPage);
  const int how = o.kind == Kind::kMapLoad ? o.flags : o.kind == Kind::kMapStore ? MAP_SHARED : MAP_PRIVATE;
  const int protection = o.kind == Kind::kMapLoad ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const map = mmap(nullptr, skipped + length, protection, how, fd, o.offset - static_cast<int64_t>(skipped));
  if (map == MAP_FAILED) return {.error = errno};
  char* const bytes = static_cast<char*>(map) + skipped;
  Result result;
  if (o.kind == Kind::kMapPrivate) result.data.assign(bytes, length);
  if (o.kind != Kind::kMapLoad) memcpy(bytes, Content(o.content, length), length);
  if (o.kind != Kind::kMapStore) result.data.append(bytes, length);
  if (o.kind == Kind::kMapStore && o.flags != 0) result = ResultOf(msync(map, skipped + length, o.flags));
  munmap(map, skipped + length);
  return result;
}

Result Side::DoFile(const Operation& o, int fd) {
  switch (o.kind) {
    case Kind::kMapStore:
    case Kind::kMapLoad:
    case Kind::kMapPrivate:
      return Map(o, fd);
    case Kind::kDirectRead:
    case Kind::kDirectWrite:
      return TransferDirect(o, fd);
    case Kind::kSeekData:
      return CheckSeek(fd, o.offset, o.flags);
    case Kind::kCopyRange: {
      off_t from = o.offset, to = o.other_offset;
      return ResultOf(copy_file_range(fd, &from, files_[o.other_slot], &to, static_cast<size_t>(o.length), 0));
    }
    case Kind::kSeek:
      // Offsets in a directory are the file system's own matter.
      if (IsDirectory(fd)) return {.error = EISDIR};
      return ResultOf(lseek(fd, o.offset, o.flags));
    case Kind::kFtruncate:
      return ResultOf(ftruncate(fd, o.offset));
    case Kind::kFallocate:
      return ResultOf(fallocate(fd, o.flags, o.offset, o.length));
    case Kind::kFchmod:
      return ResultOf(fchmod(fd, o.mode));
    case Kind::kFchown:
      return ResultOf(fchown(fd, o.uid, o.gid));
    case Kind::kFtimes:
      return ResultOf(futimens(fd, o.no_times ? nullptr : o.times));
    case Kind::kFsetXattr:
      return ResultOf(fsetxattr(fd, o.name.c_str(), o.value.data(), o.value.size(), o.flags));
    case Kind::kSync:
      return ResultOf(o.flags != 0 ? fdatasync(fd) : fsync(fd));
    case Kind::kFstat: {
      struct stat st;
      return ResultOf(fstat(fd, &st));  // Looks compares what it says
    }
    default:
      return Transfer(o, fd);
  }
}

Result Side::DoNames(const Operation& o, int base) {
  const char* const path = o.path.text.c_str();
  switch (o.kind) {
    case Kind::kMakeDir:
      return ResultOf(mkdirat(base, path, o.mode));
    case Kind::kRemoveDir:
      return ResultOf(unlinkat(base, path, AT_REMOVEDIR));
    case Kind::kUnlink:
      return ResultOf(unlinkat(base, path, 0));
    case Kind::kMakeNode:
      return ResultOf(mknodat(base, path, o.mode, o.device));
    case Kind::kSymlink:
      return ResultOf(symlinkat(o.other.text.c_str(), base, path));
    case Kind::kReadLink: {
      std::string target(5000, '\0');
      Result result = ResultOf(readlinkat(base, path, target.data(), target.size()));
      target.resize(static_cast<size_t>(result.value));
      result.data = std::move(target);
      return result;
    }
    case Kind::kLink:
      AskForMode(base, path, (o.flags & AT_SYMLINK_FOLLOW) != 0 ? 0 : AT_SYMLINK_NOFOLLOW);
      return ResultOf(linkat(base, path, BaseOf(o.other), o.other.text.c_str(), o.flags));
    case Kind::kRename:
      return ResultOf(renameat2(base, path, BaseOf(o.other), o.other.text.c_str(),
                                static_cast<unsigned>(o.flags)));
    default: {
      struct stat st;
      return ResultOf(fstatat(base, path, &st, o.flags));
    }
  }
}

Result Side::DoAttributes(const Operation& o, int base) {
  const char* const path = o.path.text.c_str();
  switch (o.kind) {
    case Kind::kChmod:
      return ResultOf(fchmodat(base, path, o.mode, 0));
    case Kind::kChown:
      return ResultOf(fchownat(base, path, o.uid, o.gid, o.flags));
    case Kind::kAccess:
      return ResultOf(faccessat(base, path, static_cast<int>(o.mode), AT_EACCESS));
    case Kind::kTruncate:
      if (base < 0) return {.error = EBADF};
      return ResultOf(truncate(ProcPath(base, o.path.text), o.offset));
    default:
      return ResultOf(utimensat(base, path, o.no_times ? nullptr : o.times, o.flags));
  }
}

Result Side::DoXattr(const Operation& o, int base) {
  if (base < 0) return {.error = EBADF};
  const char* const path = ProcPath(base, o.path.text);
  const char* const name = o.name.c_str();
  switch (o.kind) {
    case Kind::kSetXattr:
      return ResultOf(lsetxattr(path, name, o.value.data(), o.value.size(), o.flags));
    case Kind::kRemoveXattr:
      return ResultOf(lremovexattr(path, name));
    case Kind::kGetXattr: {
      std::string value(1000, '\0');
      Result result = ResultOf(lgetxattr(path, name, value.data(), value.size()));
      value.resize(static_cast<size_t>(result.value));
      result.data = std::move(value);
      return result;
    }
    default: {
      std::string names(4000, '\0');
      Result result = ResultOf(llistxattr(path, names.data(), names.size()));
      names.resize(static_cast<size_t>(result.value));
      result.data = SortedNames(names);
      result.value = 0;
      return result;
    }
  }
}

Result Side::LinkFile(const Operation& o, int base) {
  const int fd = files_[o.slot];
  AskForMode(fd, "", AT_EMPTY_PATH);
  if ((o.flags & AT_EMPTY_PATH) != 0) {
    return ResultOf(linkat(fd, "", base, o.path.text.c_str(), AT_EMPTY_PATH));
  }
  const std::string from = "/proc/self/fd/" + std::to_string(fd);
  return ResultOf(linkat(AT_FDCWD, from.c_str(), base, o.path.text.c_str(), AT_SYMLINK_FOLLOW));
}

}  // namespace salius::differential
