// syscall(2): a system call by its number. The numbers of interposed functions go to them.
//
// io_uring_setup and io_setup are answered ENOSYS, as on a kernel without them, so that a program
// falls back to calls that are seen. openat2(2) has no function in this C library.
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdarg>

#include "client/gate/newer_calls.h"
#include "client/preload/export.h"
#include "client/preload/library.h"
#include "client/preload/named_change.h"
#include "client/preload/raw_call.h"
#include "client/preload/real_calls.h"
#include "client/preload/truncating_open.h"

SALIUS_INTERPOSED(int, close, int);
SALIUS_INTERPOSED(int, close_range, unsigned, unsigned, int);
SALIUS_INTERPOSED(int, dup, int);
SALIUS_INTERPOSED(int, dup2, int, int);
SALIUS_INTERPOSED(int, dup3, int, int, int);
SALIUS_INTERPOSED(int, fcntl, int, int, ...);
SALIUS_INTERPOSED(int, ioctl, int, unsigned long, ...);
SALIUS_INTERPOSED(ssize_t, write, int, const void*, size_t);
SALIUS_INTERPOSED(ssize_t, pwrite, int, const void*, size_t, off64_t);
SALIUS_INTERPOSED(ssize_t, writev, int, const iovec*, int);
SALIUS_INTERPOSED(ssize_t, pwritev, int, const iovec*, int, off64_t);
SALIUS_INTERPOSED(ssize_t, pwritev2, int, const iovec*, int, off64_t, int);
SALIUS_INTERPOSED(int, fsync, int);
SALIUS_INTERPOSED(int, fdatasync, int);
SALIUS_INTERPOSED(void, sync);
SALIUS_INTERPOSED(int, syncfs, int);
SALIUS_INTERPOSED(int, ftruncate, int, off64_t);
SALIUS_INTERPOSED(int, truncate, const char*, off64_t);
SALIUS_INTERPOSED(int, fallocate, int, int, off64_t, off64_t);
SALIUS_INTERPOSED(ssize_t, sendfile, int, int, off64_t*, size_t);
SALIUS_INTERPOSED(ssize_t, copy_file_range, int, off64_t*, int, off64_t*, size_t, unsigned);
SALIUS_INTERPOSED(ssize_t, splice, int, off64_t*, int, off64_t*, size_t, unsigned);
SALIUS_INTERPOSED(void*, mmap, void*, size_t, int, int, int, off64_t);
SALIUS_INTERPOSED(int, munmap, void*, size_t);
SALIUS_INTERPOSED(int, mprotect, void*, size_t, int);
SALIUS_INTERPOSED(int, pkey_mprotect, void*, size_t, int, int);
SALIUS_INTERPOSED(void*, mremap, void*, size_t, size_t, int, ...);
SALIUS_INTERPOSED(int, msync, void*, size_t, int);
SALIUS_INTERPOSED(int, renameat2, int, const char*, int, const char*, unsigned);
SALIUS_INTERPOSED(int, linkat, int, const char*, int, const char*, int);
SALIUS_INTERPOSED(int, fchmod, int, mode_t);
SALIUS_INTERPOSED(int, fchown, int, uid_t, gid_t);
SALIUS_INTERPOSED(int, fsetxattr, int, const char*, const void*, size_t, int);
SALIUS_INTERPOSED(int, fremovexattr, int, const char*);
SALIUS_INTERPOSED(int, chmod, const char*, mode_t);
SALIUS_INTERPOSED(int, fchmodat, int, const char*, mode_t, int);
SALIUS_INTERPOSED(int, chown, const char*, uid_t, gid_t);
SALIUS_INTERPOSED(int, lchown, const char*, uid_t, gid_t);
SALIUS_INTERPOSED(int, fchownat, int, const char*, uid_t, gid_t, int);
SALIUS_INTERPOSED(int, setxattr, const char*, const char*, const void*, size_t, int);
SALIUS_INTERPOSED(int, lsetxattr, const char*, const char*, const void*, size_t, int);
SALIUS_INTERPOSED(int, removexattr, const char*, const char*);
SALIUS_INTERPOSED(int, lremovexattr, const char*, const char*);
SALIUS_INTERPOSED(int, execve, const char*, char* const*, char* const*);
SALIUS_INTERPOSED(int, execveat, int, const char*, char* const*, char* const*, int);

namespace salius::preload {
namespace {

// The arguments of a system call, read as the types that its function has.
struct Words {
  long word[6];
  int Int(int index) const { return static_cast<int>(word[index]); }
  unsigned Unsigned(int index) const { return static_cast<unsigned>(word[index]); }
  size_t Size(int index) const { return static_cast<size_t>(word[index]); }
  template <typename Type = void>
  Type* Pointer(int index) const {
    return reinterpret_cast<Type*>(word[index]);
  }
  const char* Path(int index) const { return Pointer<const char>(index); }
};

// The system calls that open a file.
bool OpenCall(long number, const Words& w, long& result) {
  int directory = AT_FDCWD, flags = 0, path = 0;
  switch (number) {
    case SYS_open:
      flags = w.Int(1);
      break;
    case SYS_openat:
      directory = w.Int(0), path = 1, flags = w.Int(2);
      break;
    case SYS_creat:
      flags = O_CREAT | O_WRONLY | O_TRUNC;
      break;
    case SYS_openat2:
      // A wrong pointer or size is for the kernel to refuse. Until then it may cut the file.
      directory = w.Int(0), path = 1, flags = O_TRUNC;
      break;
    default:
      return false;
  }
  result = OpenUnseen(directory, w.Path(path), flags, [&] {
    const long fd = real_calls.syscall(number, w.word[0], w.word[1], w.word[2], w.word[3],
                                       w.word[4], w.word[5]);
    if (fd < 0) return fd;
    if (number == SYS_openat2) flags = static_cast<int>(w.Pointer<const open_how>(2)->flags);
    library.Opened(static_cast<int>(fd), flags,
                   (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL));
    return fd;
  });
  return true;
}

bool DescriptorCall(long number, const Words& w, long& result) {
  switch (number) {
    case SYS_close:
      return result = interposed_close(w.Int(0)), true;
    case SYS_close_range:
      return result = interposed_close_range(w.Unsigned(0), w.Unsigned(1), w.Int(2)), true;
    case SYS_dup:
      return result = interposed_dup(w.Int(0)), true;
    case SYS_dup2:
      return result = interposed_dup2(w.Int(0), w.Int(1)), true;
    case SYS_dup3:
      return result = interposed_dup3(w.Int(0), w.Int(1), w.Int(2)), true;
    case SYS_fcntl:
      return result = interposed_fcntl(w.Int(0), w.Int(1), w.Pointer(2)), true;
    case SYS_ioctl:
      return result = interposed_ioctl(w.Int(0), w.Size(1), w.Pointer(2)), true;
    default:
      return false;
  }
}

bool WriteCallOf(long number, const Words& w, long& result) {
  const auto* parts = w.Pointer<const iovec>(1);
  switch (number) {
    case SYS_write:
      return result = interposed_write(w.Int(0), w.Pointer(1), w.Size(2)), true;
    case SYS_pwrite64:
      return result = interposed_pwrite(w.Int(0), w.Pointer(1), w.Size(2), w.word[3]), true;
    case SYS_writev:
      return result = interposed_writev(w.Int(0), parts, w.Int(2)), true;
    case SYS_pwritev:
      return result = interposed_pwritev(w.Int(0), parts, w.Int(2), w.word[3]), true;
    case SYS_pwritev2:
      return result = interposed_pwritev2(w.Int(0), parts, w.Int(2), w.word[3], w.Int(5)), true;
    default:
      return false;
  }
}

bool SyncCall(long number, const Words& w, long& result) {
  switch (number) {
    case SYS_fsync:
      return result = interposed_fsync(w.Int(0)), true;
    case SYS_fdatasync:
      return result = interposed_fdatasync(w.Int(0)), true;
    case SYS_sync:
      interposed_sync();
      return result = 0, true;
    case SYS_syncfs:
      return result = interposed_syncfs(w.Int(0)), true;
    case SYS_msync:
      return result = interposed_msync(w.Pointer(0), w.Size(1), w.Int(2)), true;
    default:
      return false;
  }
}

bool ChangeCall(long number, const Words& w, long& result) {
  switch (number) {
    case SYS_ftruncate:
      return result = interposed_ftruncate(w.Int(0), w.word[1]), true;
    case SYS_truncate:
      return result = interposed_truncate(w.Path(0), w.word[1]), true;
    case SYS_fallocate:
      return result = interposed_fallocate(w.Int(0), w.Int(1), w.word[2], w.word[3]), true;
    case SYS_sendfile:
      return result = interposed_sendfile(w.Int(0), w.Int(1), w.Pointer<off64_t>(2), w.Size(3)),
             true;
    case SYS_copy_file_range:
      return result = interposed_copy_file_range(w.Int(0), w.Pointer<off64_t>(1), w.Int(2),
                                                 w.Pointer<off64_t>(3), w.Size(4), w.Unsigned(5)),
             true;
    case SYS_splice:
      return result = interposed_splice(w.Int(0), w.Pointer<off64_t>(1), w.Int(2),
                                        w.Pointer<off64_t>(3), w.Size(4), w.Unsigned(5)),
             true;
    default:
      return false;
  }
}

bool MemoryCall(long number, const Words& w, long& result) {
  switch (number) {
    case SYS_mmap:
      return result = reinterpret_cast<long>(
                 interposed_mmap(w.Pointer(0), w.Size(1), w.Int(2), w.Int(3), w.Int(4), w.word[5])),
             true;
    case SYS_munmap:
      return result = interposed_munmap(w.Pointer(0), w.Size(1)), true;
    case SYS_mprotect:
      return result = interposed_mprotect(w.Pointer(0), w.Size(1), w.Int(2)), true;
    case SYS_pkey_mprotect:
      return result = interposed_pkey_mprotect(w.Pointer(0), w.Size(1), w.Int(2), w.Int(3)), true;
    case SYS_mremap:
      return result = reinterpret_cast<long>(
                 interposed_mremap(w.Pointer(0), w.Size(1), w.Size(2), w.Int(3), w.Pointer(4))),
             true;
    default:
      return false;
  }
}

bool NameCall(long number, const Words& w, long& result) {
  switch (number) {
    case SYS_rename:
      return result = interposed_renameat2(AT_FDCWD, w.Path(0), AT_FDCWD, w.Path(1), 0), true;
    case SYS_renameat:
      return result = interposed_renameat2(w.Int(0), w.Path(1), w.Int(2), w.Path(3), 0), true;
    case SYS_renameat2:
      return result = interposed_renameat2(w.Int(0), w.Path(1), w.Int(2), w.Path(3), w.Unsigned(4)),
             true;
    case SYS_link:
      return result = interposed_linkat(AT_FDCWD, w.Path(0), AT_FDCWD, w.Path(1), 0), true;
    case SYS_linkat:
      return result = interposed_linkat(w.Int(0), w.Path(1), w.Int(2), w.Path(3), w.Int(4)), true;
    default:
      return false;
  }
}

// The system calls that change attributes: those of a descriptor.
bool AttributeCall(long number, const Words& w, long& result) {
  switch (number) {
    case SYS_fchmod:
      return result = interposed_fchmod(w.Int(0), w.Unsigned(1)), true;
    case SYS_fchown:
      return result = interposed_fchown(w.Int(0), w.Unsigned(1), w.Unsigned(2)), true;
    case SYS_fsetxattr:
      return result = interposed_fsetxattr(w.Int(0), w.Path(1), w.Pointer(2), w.Size(3), w.Int(4)),
             true;
    case SYS_fremovexattr:
      return result = interposed_fremovexattr(w.Int(0), w.Path(1)), true;
    default:
      return false;
  }
}

// The same by path.
bool AttributeOfPathCall(long number, const Words& w, long& result) {
  switch (number) {
    case SYS_chmod:
      return result = interposed_chmod(w.Path(0), w.Unsigned(1)), true;
    case SYS_fchmodat:
      return result = interposed_fchmodat(w.Int(0), w.Path(1), w.Unsigned(2), 0), true;
    case SYS_chown:
      return result = interposed_chown(w.Path(0), w.Unsigned(1), w.Unsigned(2)), true;
    case SYS_lchown:
      return result = interposed_lchown(w.Path(0), w.Unsigned(1), w.Unsigned(2)), true;
    case SYS_fchownat:
      return result =
                 interposed_fchownat(w.Int(0), w.Path(1), w.Unsigned(2), w.Unsigned(3), w.Int(4)),
             true;
    case SYS_setxattr:
      return result = interposed_setxattr(w.Path(0), w.Path(1), w.Pointer(2), w.Size(3), w.Int(4)),
             true;
    case SYS_lsetxattr:
      return result = interposed_lsetxattr(w.Path(0), w.Path(1), w.Pointer(2), w.Size(3), w.Int(4)),
             true;
    case SYS_removexattr:
      return result = interposed_removexattr(w.Path(0), w.Path(1)), true;
    case SYS_lremovexattr:
      return result = interposed_lremovexattr(w.Path(0), w.Path(1)), true;
    default:
      return false;
  }
}

// The same by path, for which this C library has no function.
bool NewAttributeCall(long number, const Words& w, long& result) {
  int flags = 0;
  switch (number) {
    case SYS_fchmodat2:
      flags = w.Int(3);
      break;
    case SYS_setxattrat:
    case SYS_removexattrat:
      flags = w.Int(2);
      break;
    default:
      return false;
  }
  result = ChangeAttributes(PlaceOf(w.Int(0), w.Path(1), flags), [&] {
    return real_calls.syscall(number, w.word[0], w.word[1], w.word[2], w.word[3], w.word[4],
                              w.word[5]);
  });
  return true;
}

bool ProgramCall(long number, const Words& w, long& result) {
  switch (number) {
    case SYS_execve:
      return result =
                 interposed_execve(w.Path(0), w.Pointer<char* const>(1), w.Pointer<char* const>(2)),
             true;
    case SYS_execveat:
      return result = interposed_execveat(w.Int(0), w.Path(1), w.Pointer<char* const>(2),
                                          w.Pointer<char* const>(3), w.Int(4)),
             true;
    case SYS_io_uring_setup:
    case SYS_io_setup:
    case SYS_io_submit:
      errno = ENOSYS;
      return result = -1, true;
    case SYS_rt_sigaction:
      library.HandlerInstalled();
      return false;
    default:
      return false;
  }
}

// The demands of a system call that makes a process. The C library's functions make threads and
// children of vfork(2).
struct NewProcess {
  bool apart = false;  // it makes a child with memory of its own
  bool plain = false;  // no more than fork(2) does
  bool shares_descriptors = false;
};

NewProcess NewProcessOf(long number, const Words& w) {
  const auto* const words = w.Pointer<const clone_args>(0);
  uint64_t flags = 0, signal = SIGCHLD, others = 0;
  switch (number) {
    case SYS_fork:
      break;
    case SYS_clone:
      flags = static_cast<uint64_t>(w.word[0]) & ~uint64_t{CSIGNAL};
      signal = static_cast<uint64_t>(w.word[0]) & CSIGNAL;
      others = static_cast<uint64_t>(w.word[1]);
      break;
    case SYS_clone3:
      if (words == nullptr || w.Size(1) < CLONE_ARGS_SIZE_VER0) return {};  // the kernel refuses it
      flags = words->flags;
      signal = words->exit_signal;
      others = words->stack | (w.Size(1) < CLONE_ARGS_SIZE_VER1 ? 0 : words->set_tid_size);
      break;
    default:
      return {};
  }
  return {.apart = (flags & CLONE_VM) == 0,
          .plain = flags == 0 && signal == SIGCHLD && others == 0,
          .shares_descriptors = (flags & CLONE_FILES) != 0};
}

// Makes such a child as fork.cc does.
bool ForkCall(long number, const Words& w, long& result) {
  const NewProcess asked = NewProcessOf(number, w);
  if (!asked.apart) return false;
  if (asked.plain) {
    result = real_calls._Fork();
    if (result == 0) library.AfterFork();
    return true;
  }
  if (asked.shares_descriptors && library.logs()) {
    errno = EINVAL;
    return result = -1, true;
  }
  result =
      real_calls.syscall(number, w.word[0], w.word[1], w.word[2], w.word[3], w.word[4], w.word[5]);
  if (result == 0) library.AfterUnknownFork();
  return true;
}

}  // namespace
}  // namespace salius::preload

SALIUS_INTERPOSE(long, syscall, long number, ...) {
  using namespace salius::preload;
  Words w;
  va_list rest;
  va_start(rest, number);
  for (long& word : w.word) word = va_arg(rest, long);
  va_end(rest);
  long result = 0;
  if (library.on() && (WriteCallOf(number, w, result) || SyncCall(number, w, result) ||
                       OpenCall(number, w, result) || DescriptorCall(number, w, result) ||
                       ChangeCall(number, w, result) || MemoryCall(number, w, result) ||
                       NameCall(number, w, result) || AttributeCall(number, w, result) ||
                       AttributeOfPathCall(number, w, result) ||
                       NewAttributeCall(number, w, result) || ProgramCall(number, w, result) ||
                       ForkCall(number, w, result))) {
    return result;
  }
  return real_calls.syscall(number, w.word[0], w.word[1], w.word[2], w.word[3], w.word[4],
                            w.word[5]);
}
