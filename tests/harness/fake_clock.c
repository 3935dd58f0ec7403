// A wall clock that can be set under one process, as date(1) sets a host's: LD_PRELOAD.
//
// FAKE_CLOCK names a file of 8 bytes, a signed count of nanoseconds that is added to
// CLOCK_REALTIME. The file is mapped, so that a write to it sets the clock at once. CLOCK_MONOTONIC
// stays, as it does in a kernel.
//
// Waiting follows the clock too: a futex wait with an absolute CLOCK_REALTIME deadline ends when
// *this* clock reaches the deadline, even if the clock is set during the wait. So a thread behaves
// as on a host whose clock is set. Abseil of 2022 makes such a wait for each timed wait;
// libfaketime passes it to the kernel with the wrong clock.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ll
#define SLICE (20 * 1000000ll)  // a waiting thread sees a new setting this late at most

static long (*real_syscall)(long, ...);
static int (*real_clock_gettime)(clockid_t, struct timespec*);
static volatile int64_t zero;
static volatile int64_t* offset = &zero;

__attribute__((constructor)) static void Start(void) {
  real_syscall = dlsym(RTLD_NEXT, "syscall");
  real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  const char* path = getenv("FAKE_CLOCK");
  int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) abort();
  void* map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) abort();
  close(fd);
  offset = map;
}

static int64_t Nanos(const struct timespec* t) { return t->tv_sec * SECOND + t->tv_nsec; }

static struct timespec Spec(int64_t ns) {
  if (ns < 0) ns = 0;
  return (struct timespec){ns / SECOND, ns % SECOND};
}

int clock_gettime(clockid_t id, struct timespec* t) {
  if (real_clock_gettime == NULL) Start();
  int result = real_clock_gettime(id, t);
  if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) *t = Spec(Nanos(t) + *offset);
  return result;
}

int gettimeofday(struct timeval* restrict t, void* restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}

long syscall(long number, ...) {
  if (real_syscall == NULL) Start();
  va_list list;
  va_start(list, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  const struct timespec* deadline = (const struct timespec*)a[3];
  if (number != SYS_futex || (a[1] & FUTEX_CMD_MASK) != FUTEX_WAIT_BITSET || !(a[1] & FUTEX_CLOCK_REALTIME) ||
      deadline == NULL) {
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  }
  while (1) {
    struct timespec real;
    real_clock_gettime(CLOCK_REALTIME, &real);
    const int64_t left = Nanos(deadline) - (Nanos(&real) + *offset);
    if (left <= 0) {
      errno = ETIMEDOUT;
      return -1;
    }
    const struct timespec until = Spec(Nanos(&real) + (left < SLICE ? left : SLICE));
    const long result = real_syscall(number, a[0], a[1], a[2], (long)&until, a[4], a[5]);
    if (result == 0 || errno != ETIMEDOUT) return result;
  }
}

// pthread_cond_timedwait on the wall clock stays the kernel's: nothing here waits that way for
// long.
