// write(2), pwrite(2), writev(2), pwritev(2), pwritev2(2).
//
// The write goes to the page cache under the file's lock, then its record is made. Where the bytes
// went must be proven; else the file is uncovered:
//
// | write | proof of the offset |
// |---|---|
// | at an offset | none needed |
// | at the position | the position moved by what was written |
// | at the end (O_APPEND), moving the position | position and size agree afterwards |
// | at the end, not moving it | the size grew by what was written |
//
// With O_DIRECT the bytes go past the page cache to the disk's cache. A syncfs(2) need not flush
// that cache on every file system when nothing else changed, so the log's checkpoint would claim
// too much: such a write is uncovered, as bulk data.
#include "client/preload/write.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/preload/export.h"
#include "client/preload/gating.h"
#include "client/preload/library.h"
#include "client/preload/raw_call.h"
#include "client/preload/real_calls.h"
#include "client/preload/section.h"

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

namespace salius::preload {
namespace {

using direct::Reason;

// Makes the kernel's call without the flags that would flush the file. Returns -errno on failure.
ssize_t Perform(const WriteCall& call) {
  if (call.with_flags) {
    const int flags = call.flags & ~(RWF_DSYNC | RWF_SYNC);
    return Raw(SYS_pwritev2, call.fd, call.parts, call.count, call.offset, 0, flags);
  }
  if (call.vectored && call.positioned) {
    return Raw(SYS_pwritev, call.fd, call.parts, call.count, call.offset, 0);
  }
  if (call.vectored) return Raw(SYS_writev, call.fd, call.parts, call.count);
  if (call.positioned) return Raw(SYS_pwrite64, call.fd, call.data, call.size, call.offset);
  return Raw(SYS_write, call.fd, call.data, call.size);
}

off64_t Position(int fd) { return Raw(SYS_lseek, fd, 0, SEEK_CUR); }

off64_t Size(int fd) {
  struct stat status;
  return Raw(SYS_fstat, fd, &status) == 0 ? status.st_size : -1;
}

// Finds where a write's bytes go, with one look before it and one after it.
class Placing {
 public:
  // `flags`: the descriptor's, from F_GETFL.
  Placing(const WriteCall& call, int flags) : call_(call) {
    const bool append = ((flags & O_APPEND) != 0 || (call.flags & RWF_APPEND) != 0) &&
                        (call.flags & RWF_NOAPPEND) == 0;
    const bool moves = !call.positioned || (call.with_flags && call.offset == -1);
    if (append) {
      kind_ = moves ? kMovingEnd : kEnd;
    } else {
      kind_ = moves ? kPosition : kOffset;
    }
    if (kind_ == kPosition) before_ = Position(call.fd);
    if (kind_ == kEnd) before_ = Size(call.fd);
  }

  // Returns where the `written` bytes are, or -1 when that is not proven.
  off64_t Offset(ssize_t written) const {
    switch (kind_) {
      case kOffset:
        return call_.offset;
      case kPosition:
        return before_ >= 0 && Position(call_.fd) - written == before_ ? before_ : -1;
      case kMovingEnd: {
        const off64_t start = Position(call_.fd) - written;
        return start >= 0 && Size(call_.fd) - written == start ? start : -1;
      }
      case kEnd:
        return before_ >= 0 && Size(call_.fd) - written == before_ ? before_ : -1;
    }
    return -1;
  }

 private:
  enum Kind { kOffset, kPosition, kMovingEnd, kEnd };
  const WriteCall& call_;
  Kind kind_;
  off64_t before_ = -1;
};

// For how much a vectored write awaits room. Its parts are not read before the kernel has checked
// that they are there.
constexpr size_t kVectoredGuess = 64 << 10;

// Writes under the file's lock and logs. Returns what the kernel returned, and the descriptor's
// flags at `flags`.
ssize_t WriteAndLog(const WriteCall& call, const Descriptor& descriptor, long& flags) {
  direct::Files& files = library.files();
  const direct::File file = descriptor.file;
  files.AwaitRoom(file, call.vectored ? kVectoredGuess : call.size);
  files.Lock(file);
  // Under the lock, where F_SETFL changes them: they say where the bytes go.
  flags = Raw(SYS_fcntl, call.fd, F_GETFL);
  if (flags < 0) {
    files.Unlock(file);
    return flags;
  }
  const Placing placing(call, static_cast<int>(flags));
  const ssize_t written = Perform(call);
  if (written > 0) {
    if (!library.descriptors().Still(call.fd, descriptor)) {
      library.UncoverMoved(call.fd, file);
    } else if ((flags & O_DIRECT) != 0) {
      files.Uncover(file, Reason::kBulk);
    } else if (const off64_t offset = placing.Offset(written); offset < 0) {
      files.Uncover(file, Reason::kPosition);
    } else if (call.vectored) {
      files.LogWrite(file, static_cast<uint64_t>(offset), call.parts, call.count,
                     static_cast<size_t>(written));
    } else {
      const iovec part = {const_cast<void*>(call.data), call.size};
      files.LogWrite(file, static_cast<uint64_t>(offset), &part, 1, static_cast<size_t>(written));
    }
  }
  files.Unlock(file);
  return written;
}

// How durable a write's bytes must be before it returns.
enum class Durability { kNone, kData, kFull };

Durability DurabilityOf(const WriteCall& call, const Descriptor& descriptor, long flags) {
  if ((descriptor.marks & Descriptor::kFullSync) != 0 || (call.flags & RWF_SYNC) != 0 ||
      (flags & O_SYNC) == O_SYNC) {
    return Durability::kFull;
  }
  if ((descriptor.marks & Descriptor::kDataSync) != 0 || (call.flags & RWF_DSYNC) != 0 ||
      (flags & O_DSYNC) != 0) {
    return Durability::kData;
  }
  return Durability::kNone;
}

// Makes the call. Returns what the kernel returned, and the descriptor's flags at `flags`.
ssize_t Write(const WriteCall& call, const Descriptor& descriptor, long& flags) {
  Section section;
  if (section.whole()) return WriteAndLog(call, descriptor, flags);
  flags = Raw(SYS_fcntl, call.fd, F_GETFL);
  if (flags < 0) return flags;
  library.files().BeginUnseen(descriptor.file, Reason::kSignal);
  const ssize_t written = Perform(call);
  library.files().EndUnseen(descriptor.file, Reason::kSignal);
  return written;
}

}  // namespace

bool WriteTracked(const WriteCall& call, ssize_t* result) {
  if (library.Passes(call.fd)) return false;
  const Descriptor descriptor = library.Look(call.fd);
  if (!descriptor.tracked()) return false;
  // The raw call below is no cancellation point; a write to a file does not block for long.
  if (!Section::Inside()) pthread_testcancel();
  long flags = 0;
  const ssize_t written = Write(call, descriptor, flags);
  if (written > 0) {
    const Durability durability = DurabilityOf(call, descriptor, flags);
    if (durability != Durability::kNone) {
      const int failed = library.Sync(call.fd, descriptor, durability == Durability::kData);
      if (failed != 0) {
        *result = Returned(-failed);
        return true;
      }
    }
  }
  *result = Returned(written);
  return true;
}

}  // namespace salius::preload

using salius::preload::library;
using salius::preload::Output;
using salius::preload::real_calls;
using salius::preload::WriteCall;
using salius::preload::WriteTracked;

SALIUS_INTERPOSE(ssize_t, write, int fd, const void* data, size_t size) {
  ssize_t result;
  if (WriteTracked({.fd = fd, .data = data, .size = size}, &result)) return result;
  return Output(
      fd, [&] { return real_calls.write(fd, data, size); }, SYS_write, fd, data, size);
}

namespace {
ssize_t Pwrite(int fd, const void* data, size_t size, off64_t offset) {
  ssize_t result;
  if (WriteTracked({.fd = fd, .data = data, .size = size, .positioned = true, .offset = offset},
                   &result)) {
    return result;
  }
  return Output(
      fd, [&] { return real_calls.pwrite(fd, data, size, offset); }, SYS_pwrite64, fd, data, size,
      offset);
}
ssize_t Pwritev(int fd, const iovec* parts, int count, off64_t offset) {
  ssize_t result;
  if (WriteTracked({.fd = fd,
                    .vectored = true,
                    .parts = parts,
                    .count = count,
                    .positioned = true,
                    .offset = offset},
                   &result)) {
    return result;
  }
  return Output(
      fd, [&] { return real_calls.pwritev(fd, parts, count, offset); }, SYS_pwritev, fd, parts,
      count, offset, 0);
}
ssize_t Pwritev2(int fd, const iovec* parts, int count, off64_t offset, int flags) {
  ssize_t result;
  if ((flags & (RWF_DSYNC | RWF_SYNC)) != 0 && library.on()) {
    library.Look(fd);
    library.BeforeKernelSyncs(fd);
  }
  if (WriteTracked({.fd = fd,
                    .vectored = true,
                    .parts = parts,
                    .count = count,
                    .positioned = true,
                    .offset = offset,
                    .with_flags = true,
                    .flags = flags},
                   &result)) {
    return result;
  }
  return Output(
      fd, [&] { return real_calls.pwritev2(fd, parts, count, offset, flags); }, SYS_pwritev2, fd,
      parts, count, offset, 0, flags);
}
}  // namespace

SALIUS_INTERPOSE(ssize_t, pwrite, int fd, const void* data, size_t size, off64_t offset) {
  return Pwrite(fd, data, size, offset);
}
SALIUS_INTERPOSE(ssize_t, pwrite64, int fd, const void* data, size_t size, off64_t offset) {
  return Pwrite(fd, data, size, offset);
}
SALIUS_INTERPOSE(ssize_t, writev, int fd, const iovec* parts, int count) {
  ssize_t result;
  if (WriteTracked({.fd = fd, .vectored = true, .parts = parts, .count = count}, &result))
    return result;
  return Output(
      fd, [&] { return real_calls.writev(fd, parts, count); }, SYS_writev, fd, parts, count);
}
SALIUS_INTERPOSE(ssize_t, pwritev, int fd, const iovec* parts, int count, off64_t offset) {
  return Pwritev(fd, parts, count, offset);
}
SALIUS_INTERPOSE(ssize_t, pwritev64, int fd, const iovec* parts, int count, off64_t offset) {
  return Pwritev(fd, parts, count, offset);
}
SALIUS_INTERPOSE(ssize_t, pwritev2, int fd, const iovec* parts, int count, off64_t offset,
                 int flags) {
  return Pwritev2(fd, parts, count, offset, flags);
}
SALIUS_INTERPOSE(ssize_t, pwritev64v2, int fd, const iovec* parts, int count, off64_t offset,
                 int flags) {
  return Pwritev2(fd, parts, count, offset, flags);
}
