#include "client/preload/border.h"

#include <fcntl.h>
#include <limits.h>

#include <cerrno>
#include <cstring>

#include "client/preload/library.h"
#include "client/preload/raw_call.h"

namespace salius::preload {
namespace {

// Returns the size of the part of `path` before its last component: 0 for the directory itself, -1
// for a path that the kernel refuses.
int ParentSize(const char* path) {
  size_t size = path == nullptr ? 0 : strnlen(path, PATH_MAX);
  if (size == 0 || size == PATH_MAX) return -1;
  while (size > 1 && path[size - 1] == '/') --size;
  while (size > 0 && path[size - 1] != '/') --size;
  return static_cast<int>(size);
}

// Returns whether the last components of both paths are surely in one directory.
bool ShareParent(int directory, const char* path, int other_directory, const char* other) {
  const int size = ParentSize(path);
  if (size < 0 || ParentSize(other) != size) return false;
  if (memcmp(path, other, static_cast<size_t>(size)) != 0) return false;
  return directory == other_directory || *path == '/';
}

// Opens the directory in which the last component of `path` is. Returns a descriptor with O_PATH, or
// -errno. Not inline: threads with small stacks come here, and what follows needs one too.
__attribute__((noinline)) int OpenParent(int directory, const char* path) {
  char parent[PATH_MAX] = ".";
  const int size = ParentSize(path);
  if (size < 0) return -ENOENT;
  if (size > 0) {
    memcpy(parent, path, static_cast<size_t>(size));
    parent[size] = '\0';
  }
  return static_cast<int>(Raw(SYS_openat, directory, parent, O_PATH | O_DIRECTORY | O_CLOEXEC));
}

enum class Side { kInside, kOutside, kUnknown };

Side SideOf(int fd) {
  if (library.files().IsOfVolume(fd)) return Side::kInside;
  return library.files().IsOutside(fd) ? Side::kOutside : Side::kUnknown;
}

// The same for a descriptor with O_PATH, which it closes; below 0: unknown.
Side SideOfOpened(int fd) {
  if (fd < 0) return Side::kUnknown;
  const Side side = SideOf(fd);
  Raw(SYS_close, fd);
  return side;
}

Crossing Cross(Side from, Side to) {
  if (from == Side::kUnknown || to == Side::kUnknown) return Crossing::kUnknown;
  return from == to ? Crossing::kNo : Crossing::kYes;
}

}  // namespace

Crossing RenameCrosses(int from_directory, const char* from, int to_directory, const char* to) {
  if (!library.logs() || ShareParent(from_directory, from, to_directory, to)) return Crossing::kNo;
  const int before = errno;
  const Side source = SideOfOpened(OpenParent(from_directory, from));
  const Crossing crosses = Cross(source, SideOfOpened(OpenParent(to_directory, to)));
  errno = before;
  return crosses;
}

Crossing LinkCrosses(int from_directory, const char* from, int to_directory, const char* to,
                     int flags) {
  const bool follows = (flags & AT_SYMLINK_FOLLOW) != 0;
  if (!library.logs() || from == nullptr) return Crossing::kNo;
  if (!follows && ShareParent(from_directory, from, to_directory, to)) return Crossing::kNo;
  const int before = errno;
  // The file itself: a link of /proc leads to it, or an empty path.
  Side source = Side::kUnknown;
  if (*from != '\0') {
    const int how = O_PATH | O_CLOEXEC | (follows ? 0 : O_NOFOLLOW);
    source = SideOfOpened(static_cast<int>(Raw(SYS_openat, from_directory, from, how)));
  } else if ((flags & AT_EMPTY_PATH) != 0) {
    source = SideOf(from_directory);
  }
  const Crossing crosses = Cross(source, SideOfOpened(OpenParent(to_directory, to)));
  errno = before;
  return crosses;
}

}  // namespace salius::preload
