#include "client/preload/volume_ioctl.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "client/api/ioctl.h"
#include "client/preload/gating.h"
#include "client/preload/library.h"
#include "client/preload/raw_call.h"
#include "client/preload/section.h"

namespace salius::preload {
namespace {

constexpr size_t kStackBytes = 256 << 10;

// One notification that is to come. It lies in a page of its own.
struct Notice {
  uint64_t ticket;
  int fd;  // a duplicate of the program's eventfd
};
constexpr size_t kNoticeBytes = 4096;

void* AwaitAndNotify(void* page) {
  const Notice notice = *static_cast<Notice*>(page);
  Raw(SYS_munmap, page, kNoticeBytes);
  // Also when the volume fails: the program then learns it from SALIUS_IOC_WAIT.
  library.files().AwaitTicket(notice.ticket, -1);
  const uint64_t one = 1;
  Raw(SYS_write, notice.fd, &one, sizeof(one));
  Raw(SYS_close, notice.fd);
  return nullptr;
}

bool IsEventFd(int fd) {
  char path[32] = "/proc/self/fd/";
  char digits[12];
  int count = 0;
  for (int rest = fd; count == 0 || rest != 0; rest /= 10) {
    digits[count++] = static_cast<char>('0' + rest % 10);
  }
  char* at = path + strlen(path);
  while (count > 0) *at++ = digits[--count];
  *at = '\0';
  constexpr char kName[] = "anon_inode:[eventfd]";
  char name[sizeof(kName)] = {};
  return Raw(SYS_readlink, path, name, sizeof(name)) == sizeof(kName) - 1 &&
         memcmp(name, kName, sizeof(kName) - 1) == 0;
}

// Starts a thread that waits for the ticket and then adds 1 to `fd`. Returns 0 or an errno.
int StartNotice(uint64_t ticket, int fd) {
  const long own = Raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 500);
  const long copy = own == -EINVAL ? Raw(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0) : own;
  if (copy < 0) return static_cast<int>(-copy);
  const long page = Raw(SYS_mmap, nullptr, kNoticeBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page < 0 && page >= -4095) {
    Raw(SYS_close, copy);
    return static_cast<int>(-page);
  }
  auto* const notice = reinterpret_cast<Notice*>(page);
  *notice = {ticket, static_cast<int>(copy)};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  // The program's signals are not for this thread.
  const unsigned long all = ~0UL;
  unsigned long before = 0;
  Raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof(all));
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, AwaitAndNotify, notice);
  Raw(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof(before));
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    Raw(SYS_munmap, page, kNoticeBytes);
    Raw(SYS_close, copy);
  }
  return error;
}

int Notify(direct::File file, salius_ioc_notify& arguments) {
  if (arguments.flags != 0) return EINVAL;
  if (Raw(SYS_fcntl, arguments.eventfd, F_GETFD) < 0) return EBADF;
  if (!IsEventFd(arguments.eventfd)) return EINVAL;
  arguments.ticket = library.files().Ticket(file);
  if (arguments.ticket != 0) return StartNotice(arguments.ticket, arguments.eventfd);
  const uint64_t one = 1;
  const long added = Raw(SYS_write, arguments.eventfd, &one, sizeof(one));
  return added < 0 ? static_cast<int>(-added) : 0;
}

// Returns 0 or an errno.
int Answer(int fd, unsigned long request, const Descriptor& found, void* argument) {
  direct::Files& files = library.files();
  switch (request) {
    case SALIUS_IOC_WATERMARKS: {
      const direct::Watermarks marks = files.Marks();
      *static_cast<salius_watermarks*>(argument) = {marks.checkpoint, marks.issued, marks.durable,
                                                    marks.issued};
      return 0;
    }
    case SALIUS_IOC_DSYNC:
      return found.tracked() ? files.SyncNow(found.file, fd, false) : files.SyncAll();
    case SALIUS_IOC_NOTIFY:
      return Notify(found.file, *static_cast<salius_ioc_notify*>(argument));
    case SALIUS_IOC_WAIT: {
      const auto& wait = *static_cast<const salius_ioc_wait*>(argument);
      return wait.ticket == 0 ? 0 : files.AwaitTicket(wait.ticket, wait.timeout_ns);
    }
    case SALIUS_IOC_EARLY:
      return gating.on() ? 0 : EPERM;
    default:
      return ENOTSUP;
  }
}

bool IsOurs(unsigned long request) {
  return request == SALIUS_IOC_WATERMARKS || request == SALIUS_IOC_OSYNC ||
         request == SALIUS_IOC_DSYNC || request == SALIUS_IOC_NOTIFY ||
         request == SALIUS_IOC_WAIT || request == SALIUS_IOC_EARLY || request == SALIUS_IOC_GATE;
}

}  // namespace

bool VolumeIoctl(int fd, unsigned long request, void* argument, int* result) {
  if (!library.logs() || !IsOurs(request)) return false;
  const long flags = Raw(SYS_fcntl, fd, F_GETFL);
  if (flags < 0 || (flags & O_PATH) != 0) return false;
  const Descriptor found = library.Look(fd);
  if (!found.tracked() && !library.files().IsOfVolume(fd)) return false;
  int error = EDEADLK;  // a signal handler has interrupted the library
  {
    Section section;
    if (section.whole()) error = Answer(fd, request, found, argument);
  }
  *result = static_cast<int>(Returned(-error));
  return true;
}

}  // namespace salius::preload
