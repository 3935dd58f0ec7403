#include "client/preload/real_calls.h"

#include <dlfcn.h>

#include <cstdarg>

#include "client/preload/raw_call.h"

namespace salius::preload {
namespace {

// The last argument of a call with an optional one.
template <typename Value>
Value OptionalArgument(va_list arguments) {
  return va_arg(arguments, Value);
}

int RawOpen(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = OptionalArgument<mode_t>(rest);
  va_end(rest);
  return static_cast<int>(Returned(Raw(SYS_openat, AT_FDCWD, path, flags, mode)));
}
int RawOpenat(int directory, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = OptionalArgument<mode_t>(rest);
  va_end(rest);
  return static_cast<int>(Returned(Raw(SYS_openat, directory, path, flags, mode)));
}
int RawClose(int fd) { return static_cast<int>(Returned(Raw(SYS_close, fd))); }
ssize_t RawWrite(int fd, const void* data, size_t size) {
  return Returned(Raw(SYS_write, fd, data, size));
}
ssize_t RawPwrite(int fd, const void* data, size_t size, off64_t offset) {
  return Returned(Raw(SYS_pwrite64, fd, data, size, offset));
}
ssize_t RawWritev(int fd, const iovec* parts, int count) {
  return Returned(Raw(SYS_writev, fd, parts, count));
}
int RawFcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = OptionalArgument<void*>(rest);
  va_end(rest);
  return static_cast<int>(Returned(Raw(SYS_fcntl, fd, command, argument)));
}
int RawDup(int fd) { return static_cast<int>(Returned(Raw(SYS_dup, fd))); }
int RawDup2(int from, int to) { return static_cast<int>(Returned(Raw(SYS_dup2, from, to))); }
int RawDup3(int from, int to, int flags) {
  return static_cast<int>(Returned(Raw(SYS_dup3, from, to, flags)));
}
int RawIoctl(int fd, unsigned long request, ...) {
  va_list rest;
  va_start(rest, request);
  void* argument = OptionalArgument<void*>(rest);
  va_end(rest);
  return static_cast<int>(Returned(Raw(SYS_ioctl, fd, request, argument)));
}
void* RawMmap(void* address, size_t size, int protection, int flags, int fd, off64_t offset) {
  return reinterpret_cast<void*>(
      Returned(Raw(SYS_mmap, address, size, protection, flags, fd, offset)));
}
int RawMunmap(void* address, size_t size) {
  return static_cast<int>(Returned(Raw(SYS_munmap, address, size)));
}
int RawMprotect(void* address, size_t size, int protection) {
  return static_cast<int>(Returned(Raw(SYS_mprotect, address, size, protection)));
}
void* RawMremap(void* address, size_t old_size, size_t new_size, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  void* to = OptionalArgument<void*>(rest);
  va_end(rest);
  return reinterpret_cast<void*>(Returned(Raw(SYS_mremap, address, old_size, new_size, flags, to)));
}
int RawFsync(int fd) { return static_cast<int>(Returned(Raw(SYS_fsync, fd))); }
int RawFdatasync(int fd) { return static_cast<int>(Returned(Raw(SYS_fdatasync, fd))); }
int RawMsync(void* address, size_t size, int flags) {
  return static_cast<int>(Returned(Raw(SYS_msync, address, size, flags)));
}
long RawSyscall(long number, ...) {
  va_list rest;
  va_start(rest, number);
  long words[6];
  for (long& word : words) word = va_arg(rest, long);
  va_end(rest);
  return Returned(RawSix(number, words[0], words[1], words[2], words[3], words[4], words[5]));
}

template <typename Function>
void Find(Function*& function, const char* name) {
  // Keeps the stand-in when the C library has no such function.
  if (void* found = dlsym(RTLD_NEXT, name)) function = reinterpret_cast<Function*>(found);
}

}  // namespace

constinit RealCalls real_calls = {
    .open = RawOpen,
    .open64 = RawOpen,
    .openat = RawOpenat,
    .openat64 = RawOpenat,
    .close = RawClose,
    .write = RawWrite,
    .pwrite = RawPwrite,
    .writev = RawWritev,
    .fcntl = RawFcntl,
    .dup = RawDup,
    .dup2 = RawDup2,
    .dup3 = RawDup3,
    .ioctl = RawIoctl,
    .mmap = RawMmap,
    .munmap = RawMunmap,
    .mprotect = RawMprotect,
    .mremap = RawMremap,
    .fsync = RawFsync,
    .fdatasync = RawFdatasync,
    .msync = RawMsync,
    .syscall = RawSyscall,
};

void FindRealCalls() {
#define SALIUS_FIND(name, result, parameters) Find(real_calls.name, #name);
  SALIUS_PLAIN_CALLS(SALIUS_FIND)
  SALIUS_LIBRARY_CALLS(SALIUS_FIND)
#undef SALIUS_FIND
}

}  // namespace salius::preload
