// open(2) and its forms, and the makers of temporary files.
//
// The C library's function opens the file, so that errors, cancellation and flags are its own; the
// new descriptor is registered afterwards. Opening for reading only costs one look at the table.
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>

#include <cerrno>
#include <cstdarg>

#include "client/preload/export.h"
#include "client/preload/gating.h"
#include "client/preload/library.h"
#include "client/preload/real_calls.h"
#include "client/preload/section.h"
#include "client/preload/truncating_open.h"

SALIUS_INTERPOSED(int, close, int);
SALIUS_INTERPOSED(int, ftruncate, int, off64_t);

namespace salius::preload {
namespace {

// The file of `fd` may be new, or cut.
void NoteChange(int fd) {
  if (fd < 0 || !gating.on()) return;
  const int before = errno;
  if (library.files().IsOfVolume(fd)) library.files().Changed();
  errno = before;
}

int Opened(int fd, int flags) {
  if (fd < 0) return fd;
  if ((flags & (O_CREAT | O_TRUNC)) != 0) NoteChange(fd);
  library.Opened(fd, flags, (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL));
  return fd;
}

// The file behind `fd` was opened without O_TRUNC, which the program asked for. Returns `fd`, or -1
// with errno set when the file cannot be cut.
int CutOpened(int fd) {
  if (fd < 0) return fd;
  const int before = errno;
  // The flag has no meaning for other than regular files: another one may be there by now.
  if (interposed_ftruncate(fd, 0) == 0 || errno == EINVAL) {
    errno = before;
    return fd;
  }
  const int error = errno;
  interposed_close(fd);
  errno = error;
  return -1;
}

// Returns whether the open cuts a file of the volume, which is to be done afterwards.
bool CutsLater(int directory, const char* path, int flags) {
  const int access = flags & O_ACCMODE;
  // In a handler that interrupted the library the new descriptor is not looked at.
  return (access == O_WRONLY || access == O_RDWR) && !Section::Inside() &&
         CutBy(directory, path, flags).tracked();
}

// Opens by `plain`, the C library's function, with the flags that it gets.
template <typename Plain>
int OpenPlainly(int directory, const char* path, int flags, Plain plain) {
  if (CutsLater(directory, path, flags)) {
    const int without = flags & ~O_TRUNC;
    return CutOpened(Opened(plain(without), without));
  }
  return OpenUnseen(directory, path, flags, [&] { return Opened(plain(flags), flags); });
}

// Opens a file that must be new, while outputs are gated. It cannot block, so a cancellation may as
// well act before.
template <typename Plain>
int OpenNew(int directory, const char* path, int flags, mode_t mode, Plain plain) {
  pthread_testcancel();
  int folder = -1;
  switch (gating.BeforeNewName(directory, path, &folder)) {
    case Gating::Verdict::kGo:
      break;
    case Gating::Verdict::kLeave:
      return Opened(plain(flags), flags);
    case Gating::Verdict::kFail:
      errno = EIO;
      return -1;
  }
  if (folder < 0) {
    return Opened(static_cast<int>(Blocking(SYS_openat, directory, path, flags, mode)), flags);
  }
  const long fd = Raw(SYS_openat, folder, LastComponent(path), flags, mode);
  Raw(SYS_close, folder);
  return Opened(static_cast<int>(Returned(fd)), flags);
}

// Opens by `plain`, the C library's function, unless the call may make or cut a file and outputs
// are gated.
template <typename Plain>
int Open(int directory, const char* path, int flags, mode_t mode, Plain plain) {
  if (!gating.on() || (flags & (O_CREAT | O_TRUNC)) == 0) {
    return OpenPlainly(directory, path, flags, plain);
  }
  constexpr int kNew = O_CREAT | O_EXCL;
  if ((flags & kNew) == kNew) return OpenNew(directory, path, flags, mode, plain);
  if (CutsLater(directory, path, flags)) {
    return CutOpened(Open(directory, path, flags & ~O_TRUNC, mode, plain));
  }
  switch (gating.BeforeName(directory, path)) {
    case Gating::Verdict::kGo:
      return Opened(static_cast<int>(Blocking(SYS_openat, directory, path, flags, mode)), flags);
    case Gating::Verdict::kLeave:
      return OpenPlainly(directory, path, flags, plain);
    case Gating::Verdict::kFail:
      break;
  }
  errno = EIO;
  return -1;
}

int Made(int fd, int flags = 0) {
  NoteChange(fd);
  library.Opened(fd, O_RDWR | flags, true);
  return fd;
}

}  // namespace
}  // namespace salius::preload

using salius::preload::Made;
using salius::preload::Open;
using salius::preload::OpenPlainly;
using salius::preload::real_calls;

// Reads the optional mode of an open: garbage where the flags ask for none, which is passed on.
#define SALIUS_MODE(last)                   \
  va_list rest;                             \
  va_start(rest, last);                     \
  const mode_t mode = va_arg(rest, mode_t); \
  va_end(rest)

SALIUS_INTERPOSE(int, open, const char* path, int flags, ...) {
  SALIUS_MODE(flags);
  return Open(AT_FDCWD, path, flags, mode,
              [&](int with) { return real_calls.open(path, with, mode); });
}
SALIUS_INTERPOSE(int, open64, const char* path, int flags, ...) {
  SALIUS_MODE(flags);
  return Open(AT_FDCWD, path, flags, mode,
              [&](int with) { return real_calls.open64(path, with, mode); });
}
SALIUS_INTERPOSE(int, openat, int directory, const char* path, int flags, ...) {
  SALIUS_MODE(flags);
  return Open(directory, path, flags, mode,
              [&](int with) { return real_calls.openat(directory, path, with, mode); });
}
SALIUS_INTERPOSE(int, openat64, int directory, const char* path, int flags, ...) {
  SALIUS_MODE(flags);
  return Open(directory, path, flags, mode,
              [&](int with) { return real_calls.openat64(directory, path, with, mode); });
}
SALIUS_INTERPOSE(int, __open_2, const char* path, int flags) {
  return OpenPlainly(AT_FDCWD, path, flags,
                     [&](int with) { return real_calls.__open_2(path, with); });
}
SALIUS_INTERPOSE(int, __open64_2, const char* path, int flags) {
  return OpenPlainly(AT_FDCWD, path, flags,
                     [&](int with) { return real_calls.__open64_2(path, with); });
}
SALIUS_INTERPOSE(int, __openat_2, int directory, const char* path, int flags) {
  return OpenPlainly(directory, path, flags,
                     [&](int with) { return real_calls.__openat_2(directory, path, with); });
}
SALIUS_INTERPOSE(int, __openat64_2, int directory, const char* path, int flags) {
  return OpenPlainly(directory, path, flags,
                     [&](int with) { return real_calls.__openat64_2(directory, path, with); });
}
SALIUS_INTERPOSE(int, creat, const char* path, mode_t mode) {
  return Open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode,
              [&](int with) { return real_calls.open(path, with, mode); });
}
SALIUS_INTERPOSE(int, creat64, const char* path, mode_t mode) {
  return Open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode,
              [&](int with) { return real_calls.open64(path, with, mode); });
}

SALIUS_INTERPOSE(int, mkstemp, char* name) { return Made(real_calls.mkstemp(name)); }
SALIUS_INTERPOSE(int, mkstemp64, char* name) { return Made(real_calls.mkstemp64(name)); }
SALIUS_INTERPOSE(int, mkostemp, char* name, int flags) {
  return Made(real_calls.mkostemp(name, flags), flags);
}
SALIUS_INTERPOSE(int, mkostemp64, char* name, int flags) {
  return Made(real_calls.mkostemp64(name, flags), flags);
}
SALIUS_INTERPOSE(int, mkstemps, char* name, int suffix) {
  return Made(real_calls.mkstemps(name, suffix));
}
SALIUS_INTERPOSE(int, mkstemps64, char* name, int suffix) {
  return Made(real_calls.mkstemps64(name, suffix));
}
SALIUS_INTERPOSE(int, mkostemps, char* name, int suffix, int flags) {
  return Made(real_calls.mkostemps(name, suffix, flags), flags);
}
SALIUS_INTERPOSE(int, mkostemps64, char* name, int suffix, int flags) {
  return Made(real_calls.mkostemps64(name, suffix, flags), flags);
}
