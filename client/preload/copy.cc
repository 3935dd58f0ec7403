// Changes of a file's bytes or size that are no plain write: the log has no record of their bytes.
//
// | call | what is done |
// |---|---|
// | `ftruncate` | logged, under the file's lock |
// | `truncate` | uncovered: allocate |
// | `fallocate`, `posix_fallocate` | uncovered: allocate |
// | `ioctl` with a request that is not known to change nothing | uncovered: allocate |
// | `sendfile`, `copy_file_range`, `splice`, `ioctl(FICLONE)` into the file | uncovered: copy |
// | `dprintf`, `vdprintf`, `backtrace_symbols_fd` | uncovered: copy |
//
// The last ones write by functions inside the C library, which cannot be interposed.
// Such a call on a synchronous descriptor is followed by a sync, as the kernel does.
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>

#include <cerrno>
#include <cstdarg>

#include "client/gate/descriptor_kind.h"
#include "client/preload/export.h"
#include "client/preload/gating.h"
#include "client/preload/library.h"
#include "client/preload/look.h"
#include "client/preload/raw_call.h"
#include "client/preload/real_calls.h"
#include "client/preload/section.h"
#include "client/preload/volume_ioctl.h"

namespace salius::preload {
namespace {

using direct::Reason;

// Truncates and logs. Returns 0 or -errno.
long TruncateTracked(int fd, const Descriptor& descriptor, off64_t size) {
  direct::Files& files = library.files();
  const direct::File file = descriptor.file;
  files.Lock(file);
  const long result = Raw(SYS_ftruncate, fd, size);
  if (result == 0 && !library.descriptors().Still(fd, descriptor)) {
    library.UncoverMoved(fd, file);
  } else if (result == 0) {
    files.LogTruncate(file, static_cast<uint64_t>(size));
  }
  files.Unlock(file);
  return result;
}

int Ftruncate(int fd, off64_t size) {
  if (library.Passes(fd)) return real_calls.ftruncate(fd, size);
  const Descriptor descriptor = library.Look(fd);
  if (!descriptor.tracked()) return real_calls.ftruncate(fd, size);
  long result;
  {
    Section section;
    if (section.whole()) {
      result = TruncateTracked(fd, descriptor, size);
    } else {
      library.files().BeginUnseen(descriptor.file, Reason::kSignal);
      result = Raw(SYS_ftruncate, fd, size);
      library.files().EndUnseen(descriptor.file, Reason::kSignal);
    }
  }
  return static_cast<int>(Returned(result));
}

// Nothing is opened: an open and a close need a free descriptor, drop the program's record locks,
// and are seen by others. So the file is known by its inode number only, and uncovered.
int Truncate(const char* path, off64_t size) {
  if (!library.logs() || path == nullptr) return real_calls.truncate(path, size);
  const int before = errno;
  Seen first, last;
  const bool had = LookAt(AT_FDCWD, path, &first, 0);
  const direct::File file = had ? library.Known(first) : direct::File{};
  if (file.tracked()) library.files().BeginUnseen(file, Reason::kAllocate);
  errno = before;
  const int result = real_calls.truncate(path, size);
  const int after = errno;
  if (file.tracked()) library.files().EndUnseen(file, Reason::kAllocate);
  // Another thread may have put another file there, or opened this one for the first time.
  if (result == 0 && LookAt(AT_FDCWD, path, &last, 0) &&
      !(file.tracked() && first.device == last.device && first.inode == last.inode)) {
    library.UncoverSeen(last, Reason::kAllocate);
  }
  errno = after;
  return result;
}

// Makes `call`, which changes the file behind `fd` unseen. Returns what it returns, with its errno.
template <typename Call>
auto Unseen(int fd, Reason reason, Call call) {
  const int before = errno;
  const Descriptor found = library.Look(fd);
  if (found.tracked()) library.files().BeginUnseen(found.file, reason);
  errno = before;  // posix_fallocate(3) leaves it alone
  const auto result = call();
  const int after = errno;
  if (found.tracked()) library.files().EndUnseen(found.file, reason);
  // Another thread may have put another file there.
  if (!library.descriptors().Still(fd, found)) library.Uncover(fd, reason);
  errno = after;
  return result;
}

// Syncs what was changed through `fd` if it is a synchronous descriptor of the volume. Returns 0 or
// an errno; errno stays.
int SyncChange(int fd) {
  const Descriptor descriptor = library.Look(fd);
  if (!descriptor.tracked()) return 0;
  const long flags = Raw(SYS_fcntl, fd, F_GETFL);
  const bool synchronous =
      (descriptor.marks & Descriptor::kDataSync) != 0 || (flags >= 0 && (flags & O_DSYNC) != 0);
  return synchronous ? library.Sync(fd, descriptor, false) : 0;
}

// The same for a copy, which obeys O_SYNC.
template <typename Call>
ssize_t CopyInto(int fd, Call call) {
  if (library.Passes(fd)) return call();
  const ssize_t copied = Unseen(fd, Reason::kCopy, call);
  const int failed = copied > 0 ? SyncChange(fd) : 0;
  return failed == 0 ? copied : Returned(-failed);
}

// The same for a call that returns -1 when it fails.
template <typename Call>
int Change(int fd, Reason reason, Call call) {
  if (library.Passes(fd)) return call();
  const int result = Unseen(fd, reason, call);
  const int failed = result >= 0 ? SyncChange(fd) : 0;
  return failed == 0 ? result : static_cast<int>(Returned(-failed));
}

int Fallocate(int fd, int mode, off64_t offset, off64_t size) {
  return Change(fd, Reason::kAllocate,
                [&] { return real_calls.fallocate(fd, mode, offset, size); });
}

// Returns 0 or an errno, which stays.
int PosixFallocate(int fd, off64_t offset, off64_t size) {
  const auto call = [&] { return real_calls.posix_fallocate(fd, offset, size); };
  if (library.Passes(fd)) return call();
  const int result = Unseen(fd, Reason::kAllocate, call);
  return result == 0 ? SyncChange(fd) : result;
}

bool IsClone(unsigned long request) { return request == FICLONE || request == FICLONERANGE; }

// Returns whether the request only asks about a file. The kernel offers others for what
// fallocate(2) does, and each file system has its own.
bool OnlyAsks(unsigned long request) {
  switch (request) {
    case FS_IOC_GETFLAGS:
    case FS_IOC_GETVERSION:
    case FS_IOC_FSGETXATTR:
    case FS_IOC_FIEMAP:
    case FIGETBSZ:
    case FIBMAP:
      return true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace salius::preload

using salius::direct::Reason;
using salius::preload::Change;
using salius::preload::CopyInto;
using salius::preload::Output;
using salius::preload::real_calls;

SALIUS_INTERPOSE(int, ftruncate, int fd, off64_t size) {
  return salius::preload::Ftruncate(fd, size);
}
SALIUS_INTERPOSE(int, ftruncate64, int fd, off64_t size) {
  return salius::preload::Ftruncate(fd, size);
}
SALIUS_INTERPOSE(int, truncate, const char* path, off64_t size) {
  return salius::preload::Truncate(path, size);
}
SALIUS_INTERPOSE(int, truncate64, const char* path, off64_t size) {
  return salius::preload::Truncate(path, size);
}

SALIUS_INTERPOSE(int, fallocate, int fd, int mode, off64_t offset, off64_t size) {
  return salius::preload::Fallocate(fd, mode, offset, size);
}
SALIUS_INTERPOSE(int, fallocate64, int fd, int mode, off64_t offset, off64_t size) {
  return salius::preload::Fallocate(fd, mode, offset, size);
}
SALIUS_INTERPOSE(int, posix_fallocate, int fd, off64_t offset, off64_t size) {
  return salius::preload::PosixFallocate(fd, offset, size);
}
SALIUS_INTERPOSE(int, posix_fallocate64, int fd, off64_t offset, off64_t size) {
  return salius::preload::PosixFallocate(fd, offset, size);
}

SALIUS_INTERPOSE(ssize_t, sendfile, int to, int from, off64_t* offset, size_t count) {
  return CopyInto(to, [&] {
    return Output(
        to, [&] { return real_calls.sendfile(to, from, offset, count); }, SYS_sendfile, to, from,
        offset, count);
  });
}
SALIUS_INTERPOSE(ssize_t, sendfile64, int to, int from, off64_t* offset, size_t count) {
  return CopyInto(to, [&] {
    return Output(
        to, [&] { return real_calls.sendfile(to, from, offset, count); }, SYS_sendfile, to, from,
        offset, count);
  });
}
SALIUS_INTERPOSE(ssize_t, copy_file_range, int from, off64_t* from_offset, int to,
                 off64_t* to_offset, size_t count, unsigned flags) {
  return CopyInto(to, [&] {
    return Output(
        to,
        [&] {
          return real_calls.copy_file_range(from, from_offset, to, to_offset, count, flags);
        },
        SYS_copy_file_range, from, from_offset, to, to_offset, count, flags);
  });
}
SALIUS_INTERPOSE(ssize_t, splice, int from, off64_t* from_offset, int to, off64_t* to_offset,
                 size_t count, unsigned flags) {
  return CopyInto(to, [&] {
    return Output(
        to, [&] { return real_calls.splice(from, from_offset, to, to_offset, count, flags); },
        SYS_splice, from, from_offset, to, to_offset, count, flags);
  });
}
namespace {
int Print(int fd, const char* format, va_list values) {
  return static_cast<int>(
      CopyInto(fd, [&] { return real_calls.vdprintf(fd, format, values); }));
}
int PrintChecked(int fd, int flag, const char* format, va_list values) {
  return static_cast<int>(
      CopyInto(fd, [&] { return real_calls.__vdprintf_chk(fd, flag, format, values); }));
}
}  // namespace

SALIUS_INTERPOSE(int, vdprintf, int fd, const char* format, va_list values) {
  return Print(fd, format, values);
}
SALIUS_INTERPOSE(int, dprintf, int fd, const char* format, ...) {
  va_list values;
  va_start(values, format);
  const int printed = Print(fd, format, values);
  va_end(values);
  return printed;
}
// Programs that are compiled with _FORTIFY_SOURCE call these.
SALIUS_INTERPOSE(int, __vdprintf_chk, int fd, int flag, const char* format, va_list values) {
  return PrintChecked(fd, flag, format, values);
}
SALIUS_INTERPOSE(int, __dprintf_chk, int fd, int flag, const char* format, ...) {
  va_list values;
  va_start(values, format);
  const int printed = PrintChecked(fd, flag, format, values);
  va_end(values);
  return printed;
}
// A program's handler of a fault calls it: it has no result, and a sync of a synchronous descriptor
// that fails shows at the next one.
SALIUS_INTERPOSE(void, backtrace_symbols_fd, void* const* addresses, int count, int fd) {
  CopyInto(fd, [&]() -> ssize_t {
    real_calls.backtrace_symbols_fd(addresses, count, fd);
    return count;
  });
}

SALIUS_INTERPOSE(int, ioctl, int fd, unsigned long request, ...) {
  va_list rest;
  va_start(rest, request);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  int answer = 0;
  if (salius::preload::VolumeIoctl(fd, request, argument, &answer)) return answer;
  const auto plain = [&] { return real_calls.ioctl(fd, request, argument); };
  if (salius::gate::IsHarmlessIoctl(static_cast<uint32_t>(request))) return plain();
  if (salius::preload::IsClone(request)) return Change(fd, Reason::kCopy, plain);
  const auto output = [&] { return Output(fd, plain, SYS_ioctl, fd, request, argument); };
  if (salius::preload::OnlyAsks(request)) return output();
  return Change(fd, Reason::kAllocate, output);
}
