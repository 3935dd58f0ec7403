#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/unit/preload/subject.h"

static int shared_fd;

/* ---- A handler that writes and syncs, as often as a timer can interrupt. */
static volatile sig_atomic_t handled;

static void on_timer(int number) {
  (void)number;
  const int before = errno;
  if (pwrite(shared_fd, "handler", 7, 0) != 7 || fsync(shared_fd) != 0) _exit(3);
  handled = handled + 1;
  errno = before;
}

static void handler_writes(void) {
  shared_fd = subject_file("f");
  REQUIRE(signal(SIGALRM, on_timer) != SIG_ERR);
  struct itimerval timer = {{0, 200}, {0, 200}};
  REQUIRE(setitimer(ITIMER_REAL, &timer, NULL) == 0);
  while (handled < 200) {
    REQUIRE(pwrite(shared_fd, "main", 4, 100) == 4);
    REQUIRE(fdatasync(shared_fd) == 0);
  }
}

/* The same, with the function of the C library that HANDLER names. */
sighandler_t bsd_signal(int, sighandler_t);
sighandler_t __sysv_signal(int, sighandler_t);

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void handler_of_each_kind(void) {
  const char* name = getenv("HANDLER");
  REQUIRE(name != NULL);
  shared_fd = subject_file("f");
  struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
  /* The System V forms remove the handler when it runs. */
  int once = 0;
  if (strcmp(name, "sigaction") == 0) REQUIRE(sigaction(SIGALRM, &action, NULL) == 0);
  if (strcmp(name, "bsd_signal") == 0) REQUIRE(bsd_signal(SIGALRM, on_timer) != SIG_ERR);
  if (strcmp(name, "ssignal") == 0) REQUIRE(ssignal(SIGALRM, on_timer) != SIG_ERR);
  if (strcmp(name, "sigset") == 0) REQUIRE(sigset(SIGALRM, on_timer) != SIG_ERR);
  if (strcmp(name, "sysv_signal") == 0) {
    once = 1;
    REQUIRE(sysv_signal(SIGALRM, on_timer) != SIG_ERR);
  }
  if (strcmp(name, "__sysv_signal") == 0) {
    once = 1;
    REQUIRE(__sysv_signal(SIGALRM, on_timer) != SIG_ERR);
  }
  struct itimerval timer = {{0, once ? 0 : 200}, {0, 200}};
  REQUIRE(setitimer(ITIMER_REAL, &timer, NULL) == 0);
  while (handled < (once ? 1 : 100)) {
    REQUIRE(pwrite(shared_fd, "main", 4, 100) == 4);
  }
}
#pragma GCC diagnostic pop

/* The handler is unknown to the library: it was installed by the kernel's call alone. */
struct kernel_action {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)(void);
  unsigned long mask;
};

static void on_raw_timer(int number) {
  (void)number;
  const int before = errno;
  if (pwrite(shared_fd, "handler", 7, 0) != 7) _exit(3);
  if (fsync(shared_fd) != 0 && errno != EIO) _exit(3);
  handled = handled + 1;
  errno = before;
}

static long raw_call(long number, long a, long b, long c, long d) {
  long result;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                   : "rcx", "r11", "memory");
  return result;
}

__asm__(".text\nraw_restorer:\n  mov $15, %eax\n  syscall\n");
void raw_restorer(void);

static void unseen_handler_writes(void) {
  shared_fd = subject_file("f");
  struct kernel_action action = {on_raw_timer, 0x04000000 | SA_RESTART, raw_restorer, 0};
  REQUIRE(raw_call(SYS_rt_sigaction, SIGALRM, (long)&action, 0, 8) == 0);
  struct itimerval timer = {{0, 200}, {0, 200}};
  REQUIRE(setitimer(ITIMER_REAL, &timer, NULL) == 0);
  while (handled < 200) {
    REQUIRE(pwrite(shared_fd, "main", 4, 100) == 4);
    REQUIRE(fdatasync(shared_fd) == 0);
  }
}

/* ---- Another thread puts another file in the place of a descriptor that is in use: the library of the
   tests does dup2(SPARE, USED) in the middle of a call. */
enum { SPARE = 60, USED = 61 };

static void moved_in_a_write(void) {
  const int old = subject_file("f"), new = subject_file("g");
  REQUIRE(dup2(old, USED) == USED);
  REQUIRE(raw_call(SYS_dup2, new, SPARE, 0, 0) == SPARE); /* unknown to the library */
  REQUIRE(write(USED, "x", 1) == 1);
  REQUIRE(write(USED, "y", 1) == 1);
  struct stat status;
  REQUIRE(fstat(new, &status) == 0 && status.st_size == 2);
}

static void moved_in_a_truncation(void) {
  const int old = subject_file("f"), new = subject_file("g");
  REQUIRE(dup2(old, USED) == USED);
  REQUIRE(dup2(new, SPARE) == SPARE);
  REQUIRE(ftruncate(USED, 5) == 0);
  REQUIRE(ftruncate(USED, 6) == 0);
  struct stat status;
  REQUIRE(fstat(new, &status) == 0 && status.st_size == 6);
}

static void moved_in_a_look(void) {
  const int old = subject_file("f"), new = subject_file("g");
  REQUIRE(raw_call(SYS_dup2, old, USED, 0, 0) == USED);
  REQUIRE(dup2(new, SPARE) == SPARE);
  REQUIRE(write(USED, "x", 1) == 1);
  REQUIRE(write(USED, "y", 1) == 1);
  struct stat status;
  REQUIRE(fstat(new, &status) == 0 && status.st_size == 2);
}

/* ---- EINTR: a blocked write to a pipe is interrupted as before. */
static void on_nothing(int number) { (void)number; }

static void interrupted(void) {
  int pair[2];
  REQUIRE(pipe(pair) == 0);
  struct sigaction action = {.sa_handler = on_nothing};
  REQUIRE(sigaction(SIGALRM, &action, NULL) == 0);
  REQUIRE(fcntl(pair[1], F_SETFL, O_NONBLOCK) == 0);
  while (write(pair[1], "0123456789", 10) > 0) {
  }
  REQUIRE(errno == EAGAIN);
  REQUIRE(fcntl(pair[1], F_SETFL, 0) == 0);
  struct itimerval timer = {{0, 1000}, {0, 1000}};
  REQUIRE(setitimer(ITIMER_REAL, &timer, NULL) == 0);
  static char page[4096];
  FAILS(write(pair[1], page, sizeof(page)), EINTR);
}

/* ---- Threads that open, write, duplicate and close. */
static void* busy(void* argument) {
  char name[16];
  snprintf(name, sizeof(name), "t%ld", (long)(intptr_t)argument % 3);
  for (int i = 0; i < 200; ++i) {
    const int fd = open(name, O_RDWR | O_CREAT | (i % 2 == 0 ? O_DSYNC : 0), 0644);
    REQUIRE(fd >= 0 && pwrite(fd, name, 2, 8 * i) == 2);
    const int other = dup(fd);
    REQUIRE(other >= 0 && close(fd) == 0);
    REQUIRE(pwrite(other, name, 2, 8 * i) == 2 && fsync(other) == 0 && close(other) == 0);
    int pair[2];
    REQUIRE(pipe(pair) == 0 && write(pair[1], "x", 1) == 1);
    REQUIRE(close(pair[0]) == 0 && close(pair[1]) == 0);
  }
  return NULL;
}

static void threads(void) {
  pthread_t all[8];
  for (intptr_t i = 0; i < 8; ++i) REQUIRE(pthread_create(&all[i], NULL, busy, (void*)i) == 0);
  for (int i = 0; i < 8; ++i) REQUIRE(pthread_join(all[i], NULL) == 0);
}

/* ---- Cancellation: a write to a file acts on a cancel that came before. */
static void* cancelled_main(void* argument) {
  (void)argument;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  REQUIRE(pthread_cancel(pthread_self()) == 0);
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
  write(shared_fd, "cancelled", 9);
  return NULL;
}

static void cancelled(void) {
  shared_fd = subject_file("f");
  REQUIRE(write(shared_fd, "1", 1) == 1);
  pthread_t thread;
  void* result = NULL;
  REQUIRE(pthread_create(&thread, NULL, cancelled_main, NULL) == 0);
  REQUIRE(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
  REQUIRE(write(shared_fd, "2", 1) == 1);
}

const struct subject_case thread_cases[] = {
    {"handler_writes", handler_writes}, {"unseen_handler_writes", unseen_handler_writes},
    {"handler_of_each_kind", handler_of_each_kind},
    {"moved_in_a_write", moved_in_a_write},
    {"moved_in_a_truncation", moved_in_a_truncation},
    {"moved_in_a_look", moved_in_a_look},
    {"interrupted", interrupted},       {"threads", threads},
    {"cancelled", cancelled},           {NULL, NULL}};
