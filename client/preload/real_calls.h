// The C library's own functions behind the interposed ones.
//
// They are looked up once, by the library's constructor: dlsym(3) may allocate, and an interposed
// function may be called by an allocator. Until then, and where the function is a plain system
// call, the table holds the raw system call.
#pragma once

#include <aio.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <cstdarg>
#include <cstdio>

struct termios;
struct winsize;
struct iocb;

namespace salius::preload {

// X(name, result, parameters). Plain system calls: each has a raw stand-in in real_calls.cc.
#define SALIUS_PLAIN_CALLS(X)                             \
  X(open, int, (const char*, int, ...))                   \
  X(open64, int, (const char*, int, ...))                 \
  X(openat, int, (int, const char*, int, ...))            \
  X(openat64, int, (int, const char*, int, ...))          \
  X(close, int, (int))                                    \
  X(write, ssize_t, (int, const void*, size_t))           \
  X(pwrite, ssize_t, (int, const void*, size_t, off64_t)) \
  X(writev, ssize_t, (int, const iovec*, int))            \
  X(fcntl, int, (int, int, ...))                          \
  X(dup, int, (int))                                      \
  X(dup2, int, (int, int))                                \
  X(dup3, int, (int, int, int))                           \
  X(ioctl, int, (int, unsigned long, ...))                \
  X(mmap, void*, (void*, size_t, int, int, int, off64_t)) \
  X(munmap, int, (void*, size_t))                         \
  X(mprotect, int, (void*, size_t, int))                  \
  X(mremap, void*, (void*, size_t, size_t, int, ...))     \
  X(fsync, int, (int))                                    \
  X(fdatasync, int, (int))                                \
  X(msync, int, (void*, size_t, int))                     \
  X(syscall, long, (long, ...))

// All others. They are null until the constructor has run.
#define SALIUS_LIBRARY_CALLS(X)                                                        \
  X(__open_2, int, (const char*, int))                                                 \
  X(__open64_2, int, (const char*, int))                                               \
  X(__openat_2, int, (int, const char*, int))                                          \
  X(__openat64_2, int, (int, const char*, int))                                        \
  X(fopen, FILE*, (const char*, const char*))                                          \
  X(fopen64, FILE*, (const char*, const char*))                                        \
  X(freopen, FILE*, (const char*, const char*, FILE*))                                 \
  X(freopen64, FILE*, (const char*, const char*, FILE*))                               \
  X(fdopen, FILE*, (int, const char*))                                                 \
  X(fclose, int, (FILE*))                                                              \
  X(pclose, int, (FILE*))                                                              \
  X(tmpfile, FILE*, ())                                                                \
  X(tmpfile64, FILE*, ())                                                              \
  X(mkstemp, int, (char*))                                                             \
  X(mkstemp64, int, (char*))                                                           \
  X(mkostemp, int, (char*, int))                                                       \
  X(mkostemp64, int, (char*, int))                                                     \
  X(mkstemps, int, (char*, int))                                                       \
  X(mkstemps64, int, (char*, int))                                                     \
  X(mkostemps, int, (char*, int, int))                                                 \
  X(mkostemps64, int, (char*, int, int))                                               \
  X(close_range, int, (unsigned, unsigned, int))                                       \
  X(pwritev, ssize_t, (int, const iovec*, int, off64_t))                               \
  X(pwritev2, ssize_t, (int, const iovec*, int, off64_t, int))                         \
  X(sync, void, ())                                                                    \
  X(syncfs, int, (int))                                                                \
  X(pkey_mprotect, int, (void*, size_t, int, int))                                     \
  X(truncate, int, (const char*, off64_t))                                             \
  X(ftruncate, int, (int, off64_t))                                                    \
  X(fallocate, int, (int, int, off64_t, off64_t))                                      \
  X(posix_fallocate, int, (int, off64_t, off64_t))                                     \
  X(sendfile, ssize_t, (int, int, off64_t*, size_t))                                   \
  X(copy_file_range, ssize_t, (int, off64_t*, int, off64_t*, size_t, unsigned))        \
  X(splice, ssize_t, (int, off64_t*, int, off64_t*, size_t, unsigned))                 \
  X(vdprintf, int, (int, const char*, va_list))                                        \
  X(__vdprintf_chk, int, (int, int, const char*, va_list))                             \
  X(backtrace_symbols_fd, void, (void* const*, int, int))                              \
  X(rename, int, (const char*, const char*))                                           \
  X(renameat, int, (int, const char*, int, const char*))                               \
  X(renameat2, int, (int, const char*, int, const char*, unsigned))                    \
  X(link, int, (const char*, const char*))                                             \
  X(linkat, int, (int, const char*, int, const char*, int))                            \
  X(fchmod, int, (int, mode_t))                                                        \
  X(fchown, int, (int, uid_t, gid_t))                                                  \
  X(futimens, int, (int, const timespec*))                                             \
  X(fsetxattr, int, (int, const char*, const void*, size_t, int))                      \
  X(fremovexattr, int, (int, const char*))                                             \
  X(chmod, int, (const char*, mode_t))                                                 \
  X(fchmodat, int, (int, const char*, mode_t, int))                                    \
  X(lchmod, int, (const char*, mode_t))                                                \
  X(chown, int, (const char*, uid_t, gid_t))                                           \
  X(lchown, int, (const char*, uid_t, gid_t))                                          \
  X(fchownat, int, (int, const char*, uid_t, gid_t, int))                              \
  X(setxattr, int, (const char*, const char*, const void*, size_t, int))               \
  X(lsetxattr, int, (const char*, const char*, const void*, size_t, int))              \
  X(removexattr, int, (const char*, const char*))                                      \
  X(lremovexattr, int, (const char*, const char*))                                     \
  X(aio_write, int, (aiocb*))                                                          \
  X(aio_write64, int, (aiocb*))                                                        \
  X(aio_fsync, int, (int, aiocb*))                                                     \
  X(aio_fsync64, int, (int, aiocb*))                                                   \
  X(lio_listio, int, (int, aiocb* const*, int, sigevent*))                             \
  X(lio_listio64, int, (int, aiocb* const*, int, sigevent*))                           \
  X(pipe, int, (int*))                                                                 \
  X(pipe2, int, (int*, int))                                                           \
  X(socketpair, int, (int, int, int, int*))                                            \
  X(send, ssize_t, (int, const void*, size_t, int))                                    \
  X(sendto, ssize_t, (int, const void*, size_t, int, const sockaddr*, socklen_t))      \
  X(sendmsg, ssize_t, (int, const msghdr*, int))                                       \
  X(sendmmsg, int, (int, mmsghdr*, unsigned, int))                                     \
  X(connect, int, (int, const sockaddr*, socklen_t))                                   \
  X(shutdown, int, (int, int))                                                         \
  X(tee, ssize_t, (int, int, size_t, unsigned))                                        \
  X(vmsplice, ssize_t, (int, const iovec*, size_t, unsigned))                          \
  X(_Fork, pid_t, ())                                                                  \
  X(clone, int, (int (*)(void*), void*, int, void*, ...))                              \
  X(daemon, int, (int, int))                                                           \
  X(login_tty, int, (int))                                                             \
  X(execve, int, (const char*, char* const*, char* const*))                            \
  X(execvpe, int, (const char*, char* const*, char* const*))                           \
  X(execveat, int, (int, const char*, char* const*, char* const*, int))                \
  X(fexecve, int, (int, char* const*, char* const*))                                   \
  X(posix_spawn, int,                                                                  \
    (pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, \
     char* const*, char* const*))                                                      \
  X(posix_spawnp, int,                                                                 \
    (pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, \
     char* const*, char* const*))                                                      \
  X(posix_spawn_file_actions_addopen, int,                                             \
    (posix_spawn_file_actions_t*, int, const char*, int, mode_t))                      \
  X(system, int, (const char*))                                                        \
  X(popen, FILE*, (const char*, const char*))                                          \
  X(sigaction, int, (int, const struct sigaction*, struct sigaction*))                 \
  X(signal, sighandler_t, (int, sighandler_t))                                         \
  X(sysv_signal, sighandler_t, (int, sighandler_t))                                    \
  X(sigset, sighandler_t, (int, sighandler_t))

struct RealCalls {
#define SALIUS_FIELD(name, result, parameters) result(*name) parameters;
  SALIUS_PLAIN_CALLS(SALIUS_FIELD)
  SALIUS_LIBRARY_CALLS(SALIUS_FIELD)
#undef SALIUS_FIELD
};

extern RealCalls real_calls;

// Looks up every function of `real_calls`. Call it once, from the library's constructor.
void FindRealCalls();

}  // namespace salius::preload
