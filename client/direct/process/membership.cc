#include "client/direct/process/membership.h"

#include <sys/stat.h>

#include <climits>
#include <cstring>

#include "client/direct/window/system.h"

namespace salius::direct {
namespace {

constexpr char kDeleted[] = " (deleted)";

// The path of a descriptor, as the kernel shows it; empty if it does not.
class PathOf {
 public:
  explicit PathOf(int fd) {
    char name[32] = "/proc/self/fd/";
    char* end = name + std::strlen(name);
    char digits[12];
    int count = 0;
    for (unsigned rest = static_cast<unsigned>(fd); count == 0 || rest > 0; rest /= 10) {
      digits[count++] = static_cast<char>('0' + rest % 10);
    }
    while (count > 0) *end++ = digits[--count];
    *end = '\0';
    const long size =
        RawCall(SYS_readlinkat, AT_FDCWD, AsLong(name), AsLong(text_), sizeof(text_) - 1);
    size_ = size > 0 && text_[0] == '/' ? static_cast<size_t>(size) : 0;
    text_[size_] = '\0';
  }
  char* text() { return text_; }
  size_t size() const { return size_; }

 private:
  char text_[PATH_MAX];
  size_t size_ = 0;
};

}  // namespace

Place PlaceOf(int root, int fd) {
  PathOf top(root), path(fd);
  size_t size = top.size();
  if (size == 0 || path.size() == 0) return Place::kUnknown;
  // After chroot(2) the kernel shows a path from the new root, or a longer one that is not below it.
  struct stat real, seen;
  if (RawCall(SYS_fstat, root, AsLong(&real)) != 0 ||
      RawCall(SYS_stat, AsLong(top.text()), AsLong(&seen)) != 0 || real.st_dev != seen.st_dev ||
      real.st_ino != seen.st_ino) {
    return Place::kUnknown;
  }
  if (size == 1) size = 0;  // the root of the file system
  if (path.size() <= size || std::memcmp(path.text(), top.text(), size) != 0) {
    return Place::kOutside;
  }
  const char* const rest = path.text() + size;
  constexpr char kOwn[] = "/.salius/";
  const bool below = rest[0] == '/' && std::strncmp(rest, kOwn, sizeof(kOwn) - 1) != 0 &&
                     std::strcmp(rest, "/.salius") != 0;
  return below ? Place::kBelow : Place::kOutside;
}

int SyncName(int root, int fd) {
  PathOf path(fd);
  const size_t suffix = sizeof(kDeleted) - 1;
  if (path.size() > suffix &&
      std::memcmp(path.text() + path.size() - suffix, kDeleted, suffix) == 0) {
    return 0;
  }
  int directory = -ENOENT;
  if (char* const slash = std::strrchr(path.text(), '/'); slash != nullptr) {
    (slash == path.text() ? slash[1] : *slash) = '\0';
    directory = RawOpenDirectory(path.text());
  }
  if (directory < 0) return -RawSyncfs(root);
  const int error = -RawFsync(directory);
  RawClose(directory);
  return error;
}

}  // namespace salius::direct
