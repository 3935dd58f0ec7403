// Names and attributes. They belong to the local file system: a file whose name or attributes
// changed is uncovered, so that its next sync is a real one that makes them durable too.
//
// unlink(2), remove(3), symlink(2), mkdir(2) and rmdir(2) are not interposed: they make no new
// name for a file that was written, and a new file is uncovered from its beginning. fsync(2) of a
// directory is the kernel's.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "client/preload/export.h"
#include "client/preload/gating.h"
#include "client/preload/library.h"
#include "client/preload/look.h"
#include "client/preload/real_calls.h"

namespace salius::preload {
namespace {

using direct::Reason;

// The file at the path changed its name or its attributes, if `result` says so.
int Changed(int result, int directory, const char* path, bool nofollow, Reason reason) {
  if (result == 0) library.UncoverPath(directory, path, nofollow, reason);
  return result;
}

// Changes attributes of the file behind `fd`. On a mount the daemon sees the change, and it is no
// output: the call needs no look of the supervisor.
template <typename Plain, typename... Arguments>
int OnDescriptor(int fd, Plain plain, long number, Arguments... arguments) {
  Seen seen;
  const bool of_mount =
      gating.on() && LookAt(fd, &seen) && library.files().IsMount(seen.device);
  return of_mount ? static_cast<int>(Returned(Raw(number, fd, arguments...))) : plain();
}

int Attributes(int fd, int result) {
  if (result == 0) {
    const int before = errno;
    library.Uncover(fd, Reason::kAttributes);
    errno = before;
  }
  return result;
}

}  // namespace
}  // namespace salius::preload

using salius::direct::Reason;
using salius::preload::Attributes;
using salius::preload::Changed;
using salius::preload::OnDescriptor;
using salius::preload::real_calls;

SALIUS_INTERPOSE(int, rename, const char* from, const char* to) {
  return Changed(real_calls.rename(from, to), AT_FDCWD, to, true, Reason::kName);
}
SALIUS_INTERPOSE(int, renameat, int from_directory, const char* from, int to_directory,
                 const char* to) {
  return Changed(real_calls.renameat(from_directory, from, to_directory, to), to_directory, to,
                 true, Reason::kName);
}
SALIUS_INTERPOSE(int, renameat2, int from_directory, const char* from, int to_directory,
                 const char* to, unsigned flags) {
  const int result = real_calls.renameat2(from_directory, from, to_directory, to, flags);
  if ((flags & RENAME_EXCHANGE) != 0) {
    Changed(result, from_directory, from, true, Reason::kName);
  }
  return Changed(result, to_directory, to, true, Reason::kName);
}
SALIUS_INTERPOSE(int, link, const char* from, const char* to) {
  return Changed(real_calls.link(from, to), AT_FDCWD, to, true, Reason::kName);
}
SALIUS_INTERPOSE(int, linkat, int from_directory, const char* from, int to_directory,
                 const char* to, int flags) {
  return Changed(real_calls.linkat(from_directory, from, to_directory, to, flags), to_directory, to,
                 true, Reason::kName);
}

SALIUS_INTERPOSE(int, fchmod, int fd, mode_t mode) {
  return Attributes(
      fd, OnDescriptor(fd, [&] { return real_calls.fchmod(fd, mode); }, SYS_fchmod, mode));
}
SALIUS_INTERPOSE(int, fchown, int fd, uid_t user, gid_t group) {
  return Attributes(fd, OnDescriptor(
                            fd, [&] { return real_calls.fchown(fd, user, group); }, SYS_fchown,
                            user, group));
}
SALIUS_INTERPOSE(int, fsetxattr, int fd, const char* name, const void* value, size_t size,
                 int flags) {
  return Attributes(fd, OnDescriptor(
                            fd, [&] { return real_calls.fsetxattr(fd, name, value, size, flags); },
                            SYS_fsetxattr, name, value, size, flags));
}
SALIUS_INTERPOSE(int, fremovexattr, int fd, const char* name) {
  return Attributes(fd, OnDescriptor(
                            fd, [&] { return real_calls.fremovexattr(fd, name); },
                            SYS_fremovexattr, name));
}
// Times alone uncover no file: a write changes them too.
SALIUS_INTERPOSE(int, futimens, int fd, const struct timespec* times) {
  if (fd < 0) return real_calls.futimens(fd, times);  // AT_FDCWD has a meaning to the kernel
  return OnDescriptor(fd, [&] { return real_calls.futimens(fd, times); }, SYS_utimensat, nullptr,
                      times, 0);
}
SALIUS_INTERPOSE(int, chmod, const char* path, mode_t mode) {
  return Changed(real_calls.chmod(path, mode), AT_FDCWD, path, false, Reason::kAttributes);
}
SALIUS_INTERPOSE(int, fchmodat, int directory, const char* path, mode_t mode, int flags) {
  return Changed(real_calls.fchmodat(directory, path, mode, flags), directory, path,
                 (flags & AT_SYMLINK_NOFOLLOW) != 0, Reason::kAttributes);
}
SALIUS_INTERPOSE(int, lchmod, const char* path, mode_t mode) {
  return Changed(real_calls.lchmod(path, mode), AT_FDCWD, path, true, Reason::kAttributes);
}
SALIUS_INTERPOSE(int, chown, const char* path, uid_t user, gid_t group) {
  return Changed(real_calls.chown(path, user, group), AT_FDCWD, path, false, Reason::kAttributes);
}
SALIUS_INTERPOSE(int, lchown, const char* path, uid_t user, gid_t group) {
  return Changed(real_calls.lchown(path, user, group), AT_FDCWD, path, true, Reason::kAttributes);
}
SALIUS_INTERPOSE(int, fchownat, int directory, const char* path, uid_t user, gid_t group,
                 int flags) {
  if ((flags & AT_EMPTY_PATH) != 0 && path != nullptr && *path == '\0') {
    return Attributes(directory, real_calls.fchownat(directory, path, user, group, flags));
  }
  return Changed(real_calls.fchownat(directory, path, user, group, flags), directory, path,
                 (flags & AT_SYMLINK_NOFOLLOW) != 0, Reason::kAttributes);
}
SALIUS_INTERPOSE(int, setxattr, const char* path, const char* name, const void* value, size_t size,
                 int flags) {
  return Changed(real_calls.setxattr(path, name, value, size, flags), AT_FDCWD, path, false,
                 Reason::kAttributes);
}
SALIUS_INTERPOSE(int, lsetxattr, const char* path, const char* name, const void* value,
                 size_t size, int flags) {
  return Changed(real_calls.lsetxattr(path, name, value, size, flags), AT_FDCWD, path, true,
                 Reason::kAttributes);
}
SALIUS_INTERPOSE(int, removexattr, const char* path, const char* name) {
  return Changed(real_calls.removexattr(path, name), AT_FDCWD, path, false, Reason::kAttributes);
}
SALIUS_INTERPOSE(int, lremovexattr, const char* path, const char* name) {
  return Changed(real_calls.lremovexattr(path, name), AT_FDCWD, path, true, Reason::kAttributes);
}
