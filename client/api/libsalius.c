/* libsalius.so: salius.h by the ioctls of ioctl.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

#include "client/api/ioctl.h"
#include "client/api/salius.h"

#define EXPORT __attribute__((visibility("default")))

/* Has the kernel write back what was stored through shared maps of the file, as fsync(2) does. A
 * directory has no pages. */
static int write_pages_back(int fd) {
  const unsigned flags =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const int before = errno;
  if (sync_file_range(fd, 0, 0, flags) == 0) return 0;
  if (errno != ESPIPE) return -1;
  errno = before;
  return 0;
}

EXPORT int salius_osync(int fd) {
  return write_pages_back(fd) == 0 ? ioctl(fd, SALIUS_IOC_OSYNC) : -1;
}

EXPORT int salius_dsync(int fd) {
  return write_pages_back(fd) == 0 ? ioctl(fd, SALIUS_IOC_DSYNC) : -1;
}

EXPORT int64_t salius_notify(int fd, int eventfd) {
  struct salius_ioc_notify args = {.eventfd = eventfd};
  if (write_pages_back(fd) != 0 || ioctl(fd, SALIUS_IOC_NOTIFY, &args) != 0) return -1;
  return (int64_t)args.ticket;
}

EXPORT int salius_wait(int fd, int64_t ticket, int64_t timeout_ns) {
  struct salius_ioc_wait args = {.ticket = (uint64_t)ticket, .timeout_ns = timeout_ns};
  return ioctl(fd, SALIUS_IOC_WAIT, &args);
}

EXPORT int salius_watermarks(int fd, struct salius_watermarks *marks) {
  return ioctl(fd, SALIUS_IOC_WATERMARKS, marks);
}
