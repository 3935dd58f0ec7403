// Descriptors that go or are copied: close(2), dup(2), fcntl(2) and their forms.
//
// A descriptor is forgotten before the kernel closes it: the number may be another thread's new
// descriptor as soon as it is free. An entry that another thread made of it in between is forgotten too. The
// library's own descriptors do not exist for the program.
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdarg>

#include "client/preload/export.h"
#include "client/preload/gating.h"
#include "client/preload/library.h"
#include "client/preload/raw_call.h"
#include "client/preload/real_calls.h"
#include "client/preload/section.h"

namespace salius::preload {
namespace {

// Returns whether the program must not touch `fd`.
bool Owned(int fd) { return library.on() && library.files().Owns(fd) && library.Shields(); }

int Refuse(int error) {
  errno = error;
  return -1;
}

// Closes [first, last] but for the library's own descriptors, which are near the process's limit.
int CloseRange(unsigned first, unsigned last, int flags) {
  if (!library.Shields() || first > last || (flags & CLOSE_RANGE_CLOEXEC) != 0) {
    return real_calls.close_range(first, last, flags);
  }
  constexpr unsigned kHighestOwn = 1u << 16;  // the limit may have been lowered since
  rlimit limit = {};
  Raw(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit);
  unsigned own_end = limit.rlim_cur > (1u << 30) ? 1u << 30 : static_cast<unsigned>(limit.rlim_cur);
  if (own_end < kHighestOwn) own_end = kHighestOwn;
  if (!library.Borrowed()) library.descriptors().ForgetRange(first, last);
  for (unsigned fd = first; fd < own_end && fd <= last; ++fd) {
    if (!library.files().Owns(static_cast<int>(fd))) continue;
    if (fd > first && real_calls.close_range(first, fd - 1, flags) != 0) return -1;
    if (fd == last) return 0;
    first = fd + 1;
  }
  return real_calls.close_range(first, last, flags);
}

// Duplicates `from` by `duplicate`, which returns the new number.
template <typename Duplicate>
int Duplicated(int from, Duplicate duplicate) {
  if (!library.on()) return duplicate();
  const Descriptor known = library.descriptors().Get(from);
  const int to = duplicate();
  library.Duplicated(from, known, to);
  return to;
}

// The same in the place of `to`, which other threads may use.
template <typename Duplicate>
int ReplacedBy(int from, int to, Duplicate duplicate) {
  if (library.Borrowed()) return duplicate();
  library.descriptors().BeginChange(to);
  const Descriptor known = library.descriptors().Get(from);
  const int result = duplicate();
  library.Replaced(from, known, to, result == to);
  return result;
}

// `dup3_flags`: of the same call by dup3(2).
template <typename Duplicate>
int DuplicatedTo(int from, int to, int dup3_flags, Duplicate duplicate) {
  if (!library.on()) return duplicate();
  if (Owned(from)) return Refuse(EBADF);
  if (Owned(to)) return Refuse(EBUSY);
  if (from == to || to < 0) return duplicate();
  if (!gating.on()) return ReplacedBy(from, to, duplicate);
  // `to` may be closed by it.
  switch (gating.BeforeClose(to)) {
    case Gating::Verdict::kGo:
      return ReplacedBy(from, to, [&] {
        return static_cast<int>(Returned(Raw(SYS_dup3, from, to, dup3_flags)));
      });
    case Gating::Verdict::kLeave:
      return ReplacedBy(from, to, duplicate);
    case Gating::Verdict::kFail:
      break;
  }
  return Refuse(EIO);
}

int CloseGated(int fd) {
  switch (gating.BeforeClose(fd)) {
    case Gating::Verdict::kGo:
      return static_cast<int>(Blocking(SYS_close, fd));
    case Gating::Verdict::kLeave:
      return real_calls.close(fd);
    case Gating::Verdict::kFail:
      break;
  }
  return Refuse(EIO);
}

bool IsLock(int command) {
  return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
         command == F_OFD_SETLKW;
}

// Both return the result or -errno.
long SetFlags(int fd, long flags) {
  const Descriptor found = library.Look(fd);
  Section section;
  if (!found.tracked() || !section.whole()) return Raw(SYS_fcntl, fd, F_SETFL, flags);
  // A writer reads O_APPEND and O_DIRECT under the lock, in every process.
  library.files().Lock(found.file);
  const long result = Raw(SYS_fcntl, fd, F_SETFL, flags);
  library.files().Unlock(found.file);
  return result;
}

long GetFlags(int fd, const Descriptor& known) {
  const long flags = Raw(SYS_fcntl, fd, F_GETFL);
  if (flags < 0) return flags;
  if ((known.marks & Descriptor::kFullSync) != 0) return flags | O_SYNC;
  if ((known.marks & Descriptor::kDataSync) != 0) return flags | O_DSYNC;
  return flags;
}

int Fcntl(int (*real)(int, int, ...), int fd, int command, void* argument) {
  if (gating.on() && IsLock(command)) {
    // A file of the volume: no output. The look that every other descriptor needs is a system call.
    if (library.Found(fd).tracked()) {
      return static_cast<int>(Blocking(SYS_fcntl, fd, command, argument));
    }
    return Output(
        fd, [&] { return real(fd, command, argument); }, SYS_fcntl, fd, command, argument);
  }
  if (library.Passes(fd)) return real(fd, command, argument);
  constexpr uint8_t kSigned = Descriptor::kDataSync | Descriptor::kFullSync;
  switch (command) {
    case F_DUPFD:
    case F_DUPFD_CLOEXEC:
      if (Owned(fd)) return Refuse(EBADF);
      return Duplicated(fd, [&] { return real(fd, command, argument); });
    case F_SETFL:
      return static_cast<int>(Returned(SetFlags(fd, reinterpret_cast<long>(argument))));
    case F_GETFL:
      return static_cast<int>(Returned(GetFlags(fd, library.Look(fd))));
    case F_SETSIG:
    case F_GETSIG:
      // The signal's number is where a synchronous descriptor's sign is (library.cc).
      if ((library.Look(fd).marks & kSigned) != 0) return 0;
      break;
    default:
      break;
  }
  return real(fd, command, argument);
}

}  // namespace
}  // namespace salius::preload

using salius::preload::gating;
using salius::preload::library;
using salius::preload::real_calls;

SALIUS_INTERPOSE(int, close, int fd) {
  if (salius::preload::Owned(fd)) return salius::preload::Refuse(EBADF);
  const uint32_t generation = library.Forget(fd);
  const int result = gating.on() ? salius::preload::CloseGated(fd) : real_calls.close(fd);
  library.ForgetLooks(fd, generation);
  return result;
}
SALIUS_INTERPOSE(int, close_range, unsigned first, unsigned last, int flags) {
  return salius::preload::CloseRange(first, last, flags);
}
SALIUS_INTERPOSE(void, closefrom, int first) {
  const int before = errno;
  salius::preload::CloseRange(first < 0 ? 0 : static_cast<unsigned>(first), ~0u, 0);
  errno = before;
}

SALIUS_INTERPOSE(int, dup, int fd) {
  if (salius::preload::Owned(fd)) return salius::preload::Refuse(EBADF);
  return salius::preload::Duplicated(fd, [&] { return real_calls.dup(fd); });
}
SALIUS_INTERPOSE(int, dup2, int from, int to) {
  return salius::preload::DuplicatedTo(from, to, 0, [&] { return real_calls.dup2(from, to); });
}
SALIUS_INTERPOSE(int, dup3, int from, int to, int flags) {
  return salius::preload::DuplicatedTo(from, to, flags,
                                       [&] { return real_calls.dup3(from, to, flags); });
}

SALIUS_INTERPOSE(int, fcntl, int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  return salius::preload::Fcntl(real_calls.fcntl, fd, command, argument);
}
SALIUS_INTERPOSE(int, fcntl64, int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  return salius::preload::Fcntl(real_calls.fcntl, fd, command, argument);
}

// Both put descriptors in the places of the standard ones, inside the C library.
SALIUS_INTERPOSE(int, daemon, int no_chdir, int no_close) {
  for (int fd = 0; no_close == 0 && fd <= 2; ++fd) library.Forget(fd);
  const int result = real_calls.daemon(no_chdir, no_close);
  for (int fd = 0; no_close == 0 && fd <= 2; ++fd) library.Forget(fd);
  return result;
}
SALIUS_INTERPOSE(int, login_tty, int terminal) {
  const int result = real_calls.login_tty(terminal);
  for (int fd = 0; fd <= 2; ++fd) library.Forget(fd);
  library.Forget(terminal);
  return result;
}
