#include "client/fuse/caller_events.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/fuse/groups.h"
#include "common/check.h"
#include "common/log.h"

namespace salius {
namespace {

// pidfd_open(2): the thread itself, whose descriptors may not be its process's (Linux 6.9).
constexpr unsigned kPidfdThread = O_EXCL;
constexpr char kEventFdLink[] = "anon_inode:[eventfd]";
constexpr unsigned kEvents = 8;

absl::StatusOr<UniqueFd> OpenThread(uint32_t tid) {
  long fd = ::syscall(SYS_pidfd_open, tid, kPidfdThread);
  if (fd < 0 && errno == EINVAL) {
    const uint32_t process = ProcessOf(tid);
    if (process == 0) return ErrnoStatus(ENOTSUP, "the caller's process");
    fd = ::syscall(SYS_pidfd_open, process, 0);
  }
  if (fd < 0) return ErrnoStatus(errno, "pidfd_open");
  return UniqueFd(static_cast<int>(fd));
}

bool IsEventFd(int fd) {
  char link[sizeof(kEventFdLink) + 1];
  const ssize_t size =
      ::readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), link, sizeof(link));
  return size > 0 && std::string_view(link, static_cast<size_t>(size)) == kEventFdLink;
}

}  // namespace

absl::StatusOr<UniqueFd> TakeEventFd(uint32_t tid, int32_t fd) {
  if (tid == 0) return ErrnoStatus(ENOTSUP, "the caller is in a pid namespace of its own");
  if (fd < 0) return ErrnoStatus(EBADF, "eventfd");
  const absl::StatusOr<UniqueFd> thread = OpenThread(tid);
  if (!thread.ok()) {
    SLOG_WARN("no notification for thread {}: {}", tid, thread.status().ToString());
    return ErrnoStatus(ENOTSUP, "the caller's process");
  }
  const long taken = ::syscall(SYS_pidfd_getfd, thread->get(), fd, 0);
  if (taken < 0) {
    if (errno == EBADF) return ErrnoStatus(EBADF, "eventfd");
    SLOG_WARN("no notification for thread {}: pidfd_getfd: errno {}", tid, errno);
    return ErrnoStatus(ENOTSUP, "pidfd_getfd");
  }
  UniqueFd event(static_cast<int>(taken));
  if (!IsEventFd(event.get())) return ErrnoStatus(EINVAL, "no eventfd");
  return event;
}

EventSignals::~EventSignals() {
  absl::MutexLock lock(&mutex_);
  if (context_ != 0) ::syscall(SYS_io_destroy, context_);
}

absl::Status EventSignals::Open() {
  absl::MutexLock lock(&mutex_);
  if (context_ != 0) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(null_, OpenAt(AT_FDCWD, "/dev/null", O_RDONLY));
  aio_context_t context = 0;
  if (::syscall(SYS_io_setup, kEvents, &context) != 0) {
    SLOG_WARN("no notifications: io_setup: errno {} (fs.aio-max-nr)", errno);
    return ErrnoStatus(ENOTSUP, "io_setup");
  }
  context_ = context;
  return absl::OkStatus();
}

void EventSignals::Signal(int eventfd) {
  absl::MutexLock lock(&mutex_);
  char byte = 0;
  iocb read{};
  read.aio_lio_opcode = IOCB_CMD_PREAD;
  read.aio_fildes = static_cast<uint32_t>(null_.get());
  read.aio_buf = reinterpret_cast<uint64_t>(&byte);
  read.aio_nbytes = sizeof(byte);
  read.aio_flags = IOCB_FLAG_RESFD;
  read.aio_resfd = static_cast<uint32_t>(eventfd);
  iocb* reads[] = {&read};
  const long submitted = ::syscall(SYS_io_submit, context_, 1, reads);
  if (submitted != 1) SLOG_ERROR("a notification is lost: io_submit: errno {}", errno);
  io_event events[kEvents];
  timespec at_once{};
  static_cast<void>(::syscall(SYS_io_getevents, context_, 0, kEvents, events, &at_once));
}

}  // namespace salius
