// The C library's calls that tests/sim/disk.h replaces.
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/statfs.h>

#include <cstring>

#include "tests/sim/disk.h"

// The linker sends every call of these functions here.
using salius::sim::Disk;

namespace {
constexpr char kBootId[] = "/proc/sys/kernel/random/boot_id";
bool Ours(int fd) { return fd >= Disk::kFirstFd && Disk::current() != nullptr; }
}  // namespace

extern "C" {
int __real_openat(int, const char*, int, ...);
int __real_close(int);
ssize_t __real_pread(int, void*, size_t, off_t);
ssize_t __real_read(int, void*, size_t);
ssize_t __real_pwritev2(int, const iovec*, int, off_t, int);
int __real_fsync(int);
int __real_fdatasync(int);
int __real_fstat(int, struct stat*);
int __real_fstatfs(int, struct statfs*);
int __real_renameat(int, const char*, int, const char*);
int __real_posix_fadvise(int, off_t, off_t, int);
int __real_unlinkat(int, const char*, int);
int __real_syncfs(int);
int __real_statx(int, const char*, int, unsigned, struct statx*);
void* __real_mmap(void*, size_t, int, int, int, off_t);
int __real_munmap(void*, size_t);

int __wrap_openat(int dirfd, const char* path, int flags, ...) {
  if (Ours(dirfd)) return Disk::current()->Open(path, flags);
  if (Disk::current() != nullptr && std::strcmp(path, kBootId) == 0) {
    return Disk::current()->OpenBootId();
  }
  for (const char* known : {"/sys/dev/block/0:0/", "/sys/fs/ext4/sim/"}) {
    if (Disk::current() != nullptr && std::strncmp(path, known, std::strlen(known)) == 0) {
      return Disk::current()->OpenKernelFile(path);
    }
  }
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return __real_openat(dirfd, path, flags, mode);
}
int __wrap_close(int fd) { return Ours(fd) ? Disk::current()->Close(fd) : __real_close(fd); }
ssize_t __wrap_pread(int fd, void* buf, size_t n, off_t off) {
  return Ours(fd) ? Disk::current()->Pread(fd, buf, n, off) : __real_pread(fd, buf, n, off);
}
ssize_t __wrap___pread_chk(int fd, void* buf, size_t n, off_t off, size_t) {
  return __wrap_pread(fd, buf, n, off);
}
ssize_t __wrap_read(int fd, void* buf, size_t n) {
  return Ours(fd) ? Disk::current()->Read(fd, buf, n) : __real_read(fd, buf, n);
}
ssize_t __wrap___read_chk(int fd, void* buf, size_t n, size_t) { return __wrap_read(fd, buf, n); }
ssize_t __wrap_pwritev2(int fd, const iovec* parts, int count, off_t off, int flags) {
  return Ours(fd) ? Disk::current()->Pwritev(fd, parts, count, off, flags)
                  : __real_pwritev2(fd, parts, count, off, flags);
}
int __wrap_fsync(int fd) { return Ours(fd) ? Disk::current()->Sync(fd) : __real_fsync(fd); }
int __wrap_fdatasync(int fd) { return Ours(fd) ? Disk::current()->Sync(fd) : __real_fdatasync(fd); }
int __wrap_fstat(int fd, struct stat* st) {
  return Ours(fd) ? Disk::current()->Stat(fd, st) : __real_fstat(fd, st);
}
int __wrap_fstatfs(int fd, struct statfs* st) {
  if (!Ours(fd)) return __real_fstatfs(fd, st);
  std::memset(st, 0, sizeof(*st));
  st->f_type = EXT4_SUPER_MAGIC;
  return 0;
}
int __wrap_renameat(int fromfd, const char* from, int tofd, const char* to) {
  return Ours(fromfd) ? Disk::current()->Rename(from, to) : __real_renameat(fromfd, from, tofd, to);
}
int __wrap_posix_fadvise(int fd, off_t off, off_t size, int advice) {
  if (!Ours(fd)) return __real_posix_fadvise(fd, off, size, advice);
  if (advice == POSIX_FADV_DONTNEED) Disk::current()->DropCache(fd);
  return 0;
}
int __wrap_unlinkat(int dirfd, const char* name, int flags) {
  return Ours(dirfd) ? Disk::current()->Unlink(name) : __real_unlinkat(dirfd, name, flags);
}
int __wrap_syncfs(int fd) { return Ours(fd) ? Disk::current()->SyncFs() : __real_syncfs(fd); }
int __wrap_statx(int dirfd, const char* path, int flags, unsigned mask, struct statx* out) {
  if (!Ours(dirfd)) return __real_statx(dirfd, path, flags, mask, out);
  std::memset(out, 0, sizeof(*out));
  out->stx_mask = mask;
  out->stx_mnt_id = Disk::current()->mount_id();
  return 0;
}
void* __wrap_mmap(void* at, size_t size, int protection, int flags, int fd, off_t off) {
  return Ours(fd) ? Disk::current()->Map(fd, size)
                  : __real_mmap(at, size, protection, flags, fd, off);
}
int __wrap_munmap(void* at, size_t size) {
  if (Disk::current() != nullptr && Disk::current()->Unmap(at)) return 0;
  return __real_munmap(at, size);
}
}  // extern "C"
