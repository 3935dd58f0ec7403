#include "tests/differential/known.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace salius::differential {
namespace {

// Whiteouts that are not compared:
// - Where a directory would be displaced: ext4 puts the whiteout into the directory before it finds
//   that the other has entries, and takes it out again, which changes times.
// - With a setgid directory: on xfs the whiteout takes the group of the other directory, in the
//   mount and on ext4 that of its own.
bool IsComparableWhiteout(const Operation& operation, const Side& bare) {
  const auto has = [&](const Path& path, const std::string& text, mode_t bits) {
    struct stat st;
    return fstatat(bare.BaseOf(path), text.c_str(), &st, 0) == 0 && (st.st_mode & bits) == bits;
  };
  return !has(operation.other, operation.other.text, S_IFDIR) &&
         !has(operation.path, ParentOf(operation.path.text), S_ISGID) &&
         !has(operation.other, ParentOf(operation.other.text), S_ISGID);
}

bool IsXfs(const Side& bare) {
  struct statfs fs;
  return fstatfs(bare.top(), &fs) == 0 && fs.f_type == XFS_SUPER_MAGIC;
}

}  // namespace

// xfs says EEXIST when a directory would displace one with entries, where the mount says ENOTEMPTY
// as other file systems. POSIX allows both.
bool IsKnown(const Operation& operation, const Result& mount, const Result& bare) {
  return operation.kind == Kind::kRename && mount.error == ENOTEMPTY && bare.error == EEXIST;
}

Operation Comparable(Operation operation, const Side& bare) {
  const uid_t same = static_cast<uid_t>(-1);
  if (operation.kind == Kind::kRename && operation.flags == RENAME_WHITEOUT &&
      !IsComparableWhiteout(operation, bare)) {
    operation.flags = 0;
  }
  // The kernel tells a FUSE daemon nothing of a chown of neither owner nor group (docs/mount.md).
  if ((operation.kind == Kind::kChown || operation.kind == Kind::kFchown) &&
      operation.uid == same && operation.gid == static_cast<gid_t>(-1)) {
    operation.gid = 1000;
  }
  // xfs alone leaves the times of a file whose size truncate(2) does not change. The daemon is not
  // told that it is not ftruncate(2).
  if (operation.kind == Kind::kTruncate && IsXfs(bare)) {
    struct stat st;
    if (fstatat(bare.BaseOf(operation.path), operation.path.text.c_str(), &st, 0) == 0 &&
        st.st_size == operation.offset) {
      ++operation.offset;
    }
  }
  return operation;
}

ExchangedObjects::ExchangedObjects(const Operation& operation, const Side& mount,
                                   const Side& bare) {
  if (operation.kind != Kind::kRename || operation.flags != RENAME_EXCHANGE) return;
  if (!IsXfs(bare)) return;
  for (const Side* const side : {&mount, &bare}) {
    for (const Path* const path : {&operation.path, &operation.other}) {
      fds_.push_back(
          openat(side->BaseOf(*path), path->text.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    }
  }
}

ExchangedObjects::~ExchangedObjects() {
  for (const int fd : fds_) close(fd);
}

void ExchangedObjects::Touch() const {
  for (const int fd : fds_) {
    const timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_NOW}};
    utimensat(fd, "", times, AT_EMPTY_PATH);
  }
}

// A write to a FIFO or a device changes its times. The kernel does that alone, and tells no FUSE
// daemon.
bool HasTimes(mode_t mode) { return !S_ISFIFO(mode) && !S_ISCHR(mode) && !S_ISBLK(mode); }

}  // namespace salius::differential
