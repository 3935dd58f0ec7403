// stdio streams.
//
// A stream writes by functions inside the C library (fputs, fflush, fclose, exit), which cannot be
// interposed. A file with a stream open for writing is therefore uncovered (Reason::kStdio), and
// every sync of it is a real one. The descriptors 0, 1 and 2 count as such streams (library.cc).
#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "client/preload/export.h"
#include "client/preload/library.h"
#include "client/preload/real_calls.h"
#include "client/preload/truncating_open.h"

namespace salius::preload {
namespace {

// Returns the flags of open(2) of a stream's mode.
int FlagsOf(const char* mode) {
  const bool both = strchr(mode, '+') != nullptr;
  const int access = both ? O_RDWR : O_WRONLY;
  switch (mode[0]) {
    case 'w':
      return access | O_CREAT | O_TRUNC | (strchr(mode, 'x') != nullptr ? O_EXCL : 0);
    case 'a':
      return access | O_CREAT | O_APPEND;
    default:
      return both ? O_RDWR : O_RDONLY;
  }
}

// Returns the stream's descriptor, or -1. errno stays.
int DescriptorOf(FILE* stream) {
  const int before = errno;
  const int fd = fileno(stream);
  errno = before;
  return fd;
}

// The stream was just opened with `flags`, on a new descriptor.
FILE* Opened(FILE* stream, int flags, bool made) {
  if (stream == nullptr || !library.on()) return stream;
  const int fd = DescriptorOf(stream);
  library.Opened(fd, flags, made);
  if ((flags & O_ACCMODE) != O_RDONLY) library.Streams(fd);
  return stream;
}

FILE* OpenedBy(FILE* stream, const char* mode) {
  if (stream == nullptr) return nullptr;
  const int flags = FlagsOf(mode);
  return Opened(stream, flags, (flags & O_EXCL) != 0);
}

// Opens by `real`, which cuts the file when `mode` says so.
FILE* Open(FILE* (*real)(const char*, const char*), const char* path, const char* mode) {
  return OpenUnseen(AT_FDCWD, path, FlagsOf(mode),
                    [&] { return OpenedBy(real(path, mode), mode); });
}

FILE* Reopen(FILE* (*real)(const char*, const char*, FILE*), const char* path, const char* mode,
             FILE* stream) {
  if (library.on()) library.Forget(DescriptorOf(stream));
  return OpenUnseen(AT_FDCWD, path, FlagsOf(mode),
                    [&] { return OpenedBy(real(path, mode, stream), mode); });
}

}  // namespace
}  // namespace salius::preload

using salius::preload::library;
using salius::preload::Opened;
using salius::preload::real_calls;

SALIUS_INTERPOSE(FILE*, fopen, const char* path, const char* mode) {
  return salius::preload::Open(real_calls.fopen, path, mode);
}
SALIUS_INTERPOSE(FILE*, fopen64, const char* path, const char* mode) {
  return salius::preload::Open(real_calls.fopen64, path, mode);
}
SALIUS_INTERPOSE(FILE*, freopen, const char* path, const char* mode, FILE* stream) {
  return salius::preload::Reopen(real_calls.freopen, path, mode, stream);
}
SALIUS_INTERPOSE(FILE*, freopen64, const char* path, const char* mode, FILE* stream) {
  return salius::preload::Reopen(real_calls.freopen64, path, mode, stream);
}
SALIUS_INTERPOSE(FILE*, fdopen, int fd, const char* mode) {
  FILE* stream = real_calls.fdopen(fd, mode);
  if (stream != nullptr && salius::preload::FlagsOf(mode) != O_RDONLY) library.Streams(fd);
  return stream;
}
SALIUS_INTERPOSE(FILE*, tmpfile) { return Opened(real_calls.tmpfile(), O_RDWR, true); }
SALIUS_INTERPOSE(FILE*, tmpfile64) { return Opened(real_calls.tmpfile64(), O_RDWR, true); }

SALIUS_INTERPOSE(int, fclose, FILE* stream) {
  if (!library.on()) return real_calls.fclose(stream);
  const int fd = salius::preload::DescriptorOf(stream);
  const salius::preload::Descriptor descriptor = library.descriptors().Get(fd);
  const uint32_t generation = library.Forget(fd);
  const int result = real_calls.fclose(stream);
  library.ForgetLooks(fd, generation);
  if ((descriptor.marks & salius::preload::Descriptor::kStdio) != 0) {
    library.files().Uncover(descriptor.file, salius::direct::Reason::kStdio);
  }
  return result;
}
SALIUS_INTERPOSE(int, pclose, FILE* stream) {
  if (!library.on()) return real_calls.pclose(stream);
  const int fd = salius::preload::DescriptorOf(stream);
  const uint32_t generation = library.Forget(fd);
  const int result = real_calls.pclose(stream);
  library.ForgetLooks(fd, generation);
  return result;
}
