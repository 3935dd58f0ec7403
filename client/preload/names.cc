// Names and attributes. They belong to the local file system: a file whose name or attributes
// changed is uncovered, so that its next sync is a real one that makes them durable too. No file
// gets a name on the other side of the volume's border (border.h).
//
// unlink(2), remove(3), symlink(2), mkdir(2) and rmdir(2) are not interposed: they make no new
// name for a file that was written, and a new file is uncovered from its beginning. fsync(2) of a
// directory is the kernel's.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "client/preload/border.h"
#include "client/preload/export.h"
#include "client/preload/gating.h"
#include "client/preload/library.h"
#include "client/preload/look.h"
#include "client/preload/named_change.h"
#include "client/preload/real_calls.h"

namespace salius::preload {
namespace {

using direct::Reason;

constexpr int kNoFollow = AT_SYMLINK_NOFOLLOW;

// A call that returned `result` may have taken files out of the volume, where no recovery finds
// them. Which they are is not known. Returns `result`; errno stays.
int MayHaveCrossed(int result, Crossing crossing) {
  if (result != 0 || crossing != Crossing::kUnknown) return result;
  const int before = errno;
  library.files().UncoverAll(Reason::kNoId);
  errno = before;
  return result;
}

// Makes a rename, unless it crosses the volume's border.
template <typename Call>
int Rename(int from_directory, const char* from, int to_directory, const char* to, Call call) {
  const Crossing crossing = RenameCrosses(from_directory, from, to_directory, to);
  if (crossing == Crossing::kYes) {
    errno = EXDEV;
    return -1;
  }
  const int result =
      ChangeNamed(PlaceOf(from_directory, from, kNoFollow), PlaceOf(to_directory, to, kNoFollow),
                  Reason::kName, call);
  return MayHaveCrossed(result, crossing);
}

// The same for a link. The kernel looks whether the new name exists before it looks at mounts.
template <typename Call>
int Link(int from_directory, const char* from, int to_directory, const char* to, int flags,
         Call call) {
  const Crossing crossing = LinkCrosses(from_directory, from, to_directory, to, flags);
  if (crossing == Crossing::kYes) {
    Seen seen;
    errno = LookAt(to_directory, to, &seen) ? EEXIST : EXDEV;
    return -1;
  }
  const int link = (flags & AT_SYMLINK_FOLLOW) != 0 ? 0 : kNoFollow;
  const int result =
      ChangeNamed(PlaceOf(from_directory, from, link), PlaceOf(to_directory, to, kNoFollow),
                  Reason::kName, call);
  return MayHaveCrossed(result, crossing);
}

// Makes a call on the file behind `fd` that changes its attributes or times. On a mount the daemon
// sees the change, and it is no output: the call needs no look of the supervisor.
template <typename Plain, typename... Arguments>
int OnDescriptor(int fd, Plain plain, long number, Arguments... arguments) {
  Seen seen;
  const bool of_mount =
      gating.on() && LookAt(fd, &seen) && library.files().IsMount(seen.device);
  return of_mount ? static_cast<int>(Returned(Raw(number, fd, arguments...))) : plain();
}

// The same for attributes, whose change uncovers the file.
template <typename Plain, typename... Arguments>
int AttributesOf(int fd, Plain plain, long number, Arguments... arguments) {
  return ChangeAttributes(PlaceOf(fd, "", 0),
                          [&] { return OnDescriptor(fd, plain, number, arguments...); });
}

}  // namespace
}  // namespace salius::preload

using salius::direct::Reason;
using salius::preload::AttributesOf;
using salius::preload::ChangeAttributes;
using salius::preload::ChangeNamed;
using salius::preload::kNoFollow;
using salius::preload::Link;
using salius::preload::OnDescriptor;
using salius::preload::PlaceOf;
using salius::preload::real_calls;
using salius::preload::Rename;

SALIUS_INTERPOSE(int, rename, const char* from, const char* to) {
  return Rename(AT_FDCWD, from, AT_FDCWD, to, [&] { return real_calls.rename(from, to); });
}
SALIUS_INTERPOSE(int, renameat, int from_directory, const char* from, int to_directory,
                 const char* to) {
  return Rename(from_directory, from, to_directory, to,
                [&] { return real_calls.renameat(from_directory, from, to_directory, to); });
}
SALIUS_INTERPOSE(int, renameat2, int from_directory, const char* from, int to_directory,
                 const char* to, unsigned flags) {
  const auto call = [&] {
    return real_calls.renameat2(from_directory, from, to_directory, to, flags);
  };
  if ((flags & RENAME_EXCHANGE) == 0) return Rename(from_directory, from, to_directory, to, call);
  return Rename(from_directory, from, to_directory, to, [&] {
    return ChangeNamed(PlaceOf(to_directory, to, kNoFollow),
                       PlaceOf(from_directory, from, kNoFollow), Reason::kName, call);
  });
}
SALIUS_INTERPOSE(int, link, const char* from, const char* to) {
  return Link(AT_FDCWD, from, AT_FDCWD, to, 0, [&] { return real_calls.link(from, to); });
}
SALIUS_INTERPOSE(int, linkat, int from_directory, const char* from, int to_directory,
                 const char* to, int flags) {
  return Link(from_directory, from, to_directory, to, flags,
              [&] { return real_calls.linkat(from_directory, from, to_directory, to, flags); });
}

SALIUS_INTERPOSE(int, fchmod, int fd, mode_t mode) {
  return AttributesOf(fd, [&] { return real_calls.fchmod(fd, mode); }, SYS_fchmod, mode);
}
SALIUS_INTERPOSE(int, fchown, int fd, uid_t user, gid_t group) {
  return AttributesOf(fd, [&] { return real_calls.fchown(fd, user, group); }, SYS_fchown, user,
                      group);
}
SALIUS_INTERPOSE(int, fsetxattr, int fd, const char* name, const void* value, size_t size,
                 int flags) {
  return AttributesOf(fd, [&] { return real_calls.fsetxattr(fd, name, value, size, flags); },
                      SYS_fsetxattr, name, value, size, flags);
}
SALIUS_INTERPOSE(int, fremovexattr, int fd, const char* name) {
  return AttributesOf(fd, [&] { return real_calls.fremovexattr(fd, name); }, SYS_fremovexattr,
                      name);
}
// Times alone uncover no file: a write changes them too.
SALIUS_INTERPOSE(int, futimens, int fd, const struct timespec* times) {
  if (fd < 0) return real_calls.futimens(fd, times);  // AT_FDCWD has a meaning to the kernel
  return OnDescriptor(fd, [&] { return real_calls.futimens(fd, times); }, SYS_utimensat, nullptr,
                      times, 0);
}
SALIUS_INTERPOSE(int, chmod, const char* path, mode_t mode) {
  return ChangeAttributes(PlaceOf(AT_FDCWD, path, 0), [&] { return real_calls.chmod(path, mode); });
}
SALIUS_INTERPOSE(int, fchmodat, int directory, const char* path, mode_t mode, int flags) {
  return ChangeAttributes(PlaceOf(directory, path, flags),
                          [&] { return real_calls.fchmodat(directory, path, mode, flags); });
}
SALIUS_INTERPOSE(int, lchmod, const char* path, mode_t mode) {
  return ChangeAttributes(PlaceOf(AT_FDCWD, path, kNoFollow),
                          [&] { return real_calls.lchmod(path, mode); });
}
SALIUS_INTERPOSE(int, chown, const char* path, uid_t user, gid_t group) {
  return ChangeAttributes(PlaceOf(AT_FDCWD, path, 0),
                          [&] { return real_calls.chown(path, user, group); });
}
SALIUS_INTERPOSE(int, lchown, const char* path, uid_t user, gid_t group) {
  return ChangeAttributes(PlaceOf(AT_FDCWD, path, kNoFollow),
                          [&] { return real_calls.lchown(path, user, group); });
}
SALIUS_INTERPOSE(int, fchownat, int directory, const char* path, uid_t user, gid_t group,
                 int flags) {
  return ChangeAttributes(PlaceOf(directory, path, flags),
                          [&] { return real_calls.fchownat(directory, path, user, group, flags); });
}
SALIUS_INTERPOSE(int, setxattr, const char* path, const char* name, const void* value, size_t size,
                 int flags) {
  return ChangeAttributes(PlaceOf(AT_FDCWD, path, 0),
                          [&] { return real_calls.setxattr(path, name, value, size, flags); });
}
SALIUS_INTERPOSE(int, lsetxattr, const char* path, const char* name, const void* value, size_t size,
                 int flags) {
  return ChangeAttributes(PlaceOf(AT_FDCWD, path, kNoFollow),
                          [&] { return real_calls.lsetxattr(path, name, value, size, flags); });
}
SALIUS_INTERPOSE(int, removexattr, const char* path, const char* name) {
  return ChangeAttributes(PlaceOf(AT_FDCWD, path, 0),
                          [&] { return real_calls.removexattr(path, name); });
}
SALIUS_INTERPOSE(int, lremovexattr, const char* path, const char* name) {
  return ChangeAttributes(PlaceOf(AT_FDCWD, path, kNoFollow),
                          [&] { return real_calls.lremovexattr(path, name); });
}
