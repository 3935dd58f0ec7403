#define _GNU_SOURCE
#include <aio.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/unit/preload/subject.h"

static void names(void) {
  REQUIRE(close(subject_file("f")) == 0);
  REQUIRE(rename("f", "g") == 0);
  REQUIRE(renameat(AT_FDCWD, "g", AT_FDCWD, "h") == 0);
  REQUIRE(renameat2(AT_FDCWD, "h", AT_FDCWD, "i", RENAME_NOREPLACE) == 0);
  REQUIRE(link("i", "j") == 0);
  REQUIRE(linkat(AT_FDCWD, "i", AT_FDCWD, "k", 0) == 0);
  REQUIRE(syscall(SYS_rename, "k", "l") == 0);
  REQUIRE(symlink("l", "s") == 0);
  REQUIRE(symlinkat("l", AT_FDCWD, "t") == 0);
  REQUIRE(unlink("s") == 0);
  REQUIRE(unlinkat(AT_FDCWD, "t", 0) == 0);
  REQUIRE(remove("l") == 0);
  REQUIRE(mkdir("d", 0700) == 0);
  REQUIRE(mkdirat(AT_FDCWD, "e", 0700) == 0);
  REQUIRE(rename("d", "dd") == 0);
  REQUIRE(rmdir("dd") == 0);
  FAILS(rename("absent", "x"), ENOENT);
  FAILS(link("absent", "x"), ENOENT);
  FAILS(rename("i", "absent/x"), ENOENT);
}

static void names_of_others(void) {
  /* Never written under the library: has no id. */
  REQUIRE(close(syscall(SYS_openat, AT_FDCWD, "/tmp/salius-preload-other", O_WRONLY | O_CREAT,
                        0600L)) == 0);
  REQUIRE(rename("/tmp/salius-preload-other", "/tmp/salius-preload-another") == 0);
  REQUIRE(unlink("/tmp/salius-preload-another") == 0);
}

static void attributes(void) {
  const int fd = subject_file("f");
  REQUIRE(fchmod(fd, 0600) == 0);
  REQUIRE(fchown(fd, getuid(), getgid()) == 0);
  REQUIRE(chmod("f", 0600) == 0);
  REQUIRE(fchmodat(AT_FDCWD, "f", 0600, 0) == 0);
  REQUIRE(chown("f", getuid(), getgid()) == 0);
  REQUIRE(fchownat(AT_FDCWD, "f", getuid(), getgid(), 0) == 0);
  REQUIRE(fchownat(fd, "", getuid(), getgid(), AT_EMPTY_PATH) == 0);
  REQUIRE(fsetxattr(fd, "user.x", "1", 1, 0) == 0);
  REQUIRE(fremovexattr(fd, "user.x") == 0);
  REQUIRE(setxattr("f", "user.x", "1", 1, 0) == 0);
  REQUIRE(removexattr("f", "user.x") == 0);
  REQUIRE(lchmod("f", 0600) == 0);
  REQUIRE(lchown("f", getuid(), getgid()) == 0);
  REQUIRE(lsetxattr("f", "user.x", "1", 1, 0) == 0);
  REQUIRE(lremovexattr("f", "user.x") == 0);
  REQUIRE(futimens(fd, NULL) == 0);
  FAILS(fchmod(99, 0600), EBADF);
  FAILS(futimens(99, NULL), EBADF);
  FAILS(futimens(-1, NULL), EBADF);
  FAILS(futimens(AT_FDCWD, NULL), EBADF);
}

static void attributes_by_number(void) {
  const int fd = subject_file("f");
  const long user = getuid(), group = getgid();
  REQUIRE(syscall(SYS_fchmod, fd, 0600L) == 0);
  REQUIRE(syscall(SYS_fchown, fd, user, group) == 0);
  REQUIRE(syscall(SYS_fsetxattr, fd, "user.x", "1", 1L, 0L) == 0);
  REQUIRE(syscall(SYS_fremovexattr, fd, "user.x") == 0);
  REQUIRE(syscall(SYS_chmod, "f", 0600L) == 0);
  REQUIRE(syscall(SYS_fchmodat, AT_FDCWD, "f", 0600L) == 0);
  REQUIRE(syscall(SYS_chown, "f", user, group) == 0);
  REQUIRE(syscall(SYS_lchown, "f", user, group) == 0);
  REQUIRE(syscall(SYS_fchownat, AT_FDCWD, "f", user, group, 0L) == 0);
  REQUIRE(syscall(SYS_setxattr, "f", "user.x", "1", 1L, 0L) == 0);
  REQUIRE(syscall(SYS_removexattr, "f", "user.x") == 0);
  REQUIRE(syscall(SYS_lsetxattr, "f", "user.x", "1", 1L, 0L) == 0);
  REQUIRE(syscall(SYS_lremovexattr, "f", "user.x") == 0);
  FAILS(syscall(SYS_chmod, "absent", 0600L), ENOENT);
}

const struct subject_case name_cases[] = {{"names", names},
                                          {"names_of_others", names_of_others},
                                          {"attributes", attributes},
                                          {"attributes_by_number", attributes_by_number},
                                          {NULL, NULL}};

/* Without the library a request is completed by another thread. */
static ssize_t completed(struct aiocb* request) {
  while (aio_error(request) == EINPROGRESS) usleep(100);
  return aio_return(request);
}
static ssize_t completed64(struct aiocb64* request) {
  while (aio_error64(request) == EINPROGRESS) usleep(100);
  return aio_return64(request);
}

static void aio_calls(void) {
  const int fd = subject_file("f");
  struct aiocb request = {.aio_fildes = fd, .aio_buf = "hello", .aio_nbytes = 5, .aio_offset = 10};
  request.aio_sigevent.sigev_notify = SIGEV_NONE;
  REQUIRE(aio_write(&request) == 0);
  const struct aiocb* list[] = {&request};
  REQUIRE(aio_suspend(list, 1, NULL) == 0);
  REQUIRE(aio_error(&request) == 0 && aio_return(&request) == 5);
  struct aiocb64 wide = {.aio_fildes = fd, .aio_buf = "wide", .aio_nbytes = 4};
  wide.aio_sigevent.sigev_notify = SIGEV_NONE;
  REQUIRE(aio_write64(&wide) == 0 && completed64(&wide) == 4);
  REQUIRE(aio_fsync(O_SYNC, &request) == 0 && completed(&request) == 0);
  REQUIRE(aio_fsync64(O_DSYNC, &wide) == 0 && completed64(&wide) == 0);
  REQUIRE(aio_cancel(fd, &request) == AIO_ALLDONE);
  /* A wrong descriptor fails as it does without the library. */
  request.aio_fildes = 99;
  REQUIRE(aio_write(&request) == 0);
  while (aio_error(&request) == EINPROGRESS) usleep(100);
  REQUIRE(aio_error(&request) == EBADF);
}

static volatile sig_atomic_t signalled;
static void on_signal(int number, siginfo_t* information, void* context) {
  (void)number;
  (void)context;
  if (information->si_value.sival_int == 7) signalled = signalled + 1;
}

static volatile int called;
static void on_call(union sigval value) { __atomic_fetch_add(&called, value.sival_int, 5); }

static void aio_notifies(void) {
  const int fd = subject_file("f");
  struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
  REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
  struct aiocb request = {.aio_fildes = fd, .aio_buf = "hello", .aio_nbytes = 5};
  request.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
  request.aio_sigevent.sigev_signo = SIGUSR1;
  request.aio_sigevent.sigev_value.sival_int = 7;
  REQUIRE(aio_write(&request) == 0);
  while (signalled == 0) usleep(100);
  request.aio_sigevent.sigev_notify = SIGEV_THREAD;
  request.aio_sigevent.sigev_notify_function = on_call;
  REQUIRE(aio_write(&request) == 0);
  while (__atomic_load_n(&called, 5) == 0) usleep(100);
}

static void aio_lists(void) {
  const int fd = subject_file("f");
  int pair[2];
  REQUIRE(pipe(pair) == 0);
  struct aiocb one = {
      .aio_fildes = fd, .aio_buf = "one", .aio_nbytes = 3, .aio_lio_opcode = LIO_WRITE};
  one.aio_sigevent.sigev_notify = SIGEV_NONE;
  struct aiocb two = one;
  two.aio_fildes = pair[1];
  struct aiocb* list[] = {&one, NULL, &two};
  REQUIRE(lio_listio(LIO_WAIT, list, 3, NULL) == 0);
  REQUIRE(aio_return(&one) == 3 && aio_return(&two) == 3);
  struct aiocb64 wide = {
      .aio_fildes = fd, .aio_buf = "wide", .aio_nbytes = 4, .aio_lio_opcode = LIO_WRITE};
  wide.aio_sigevent.sigev_notify = SIGEV_NONE;
  struct aiocb64* wide_list[] = {&wide};
  REQUIRE(lio_listio64(LIO_NOWAIT, wide_list, 1, NULL) == 0);
  REQUIRE(completed64(&wide) == 4);
  one.aio_offset = -1;
  FAILS(lio_listio(LIO_WAIT, list, 1, NULL), EIO);
  REQUIRE(aio_error(&one) == EINVAL);
}

int io_setup(int, void**) __attribute__((weak));
int io_submit(void*, long, struct iocb**) __attribute__((weak));

static void kernel_aio_is_refused(void) {
  void* context = NULL;
  REQUIRE(io_setup != NULL && io_setup(8, &context) == -ENOSYS);
  REQUIRE(io_submit != NULL && io_submit(context, 0, NULL) == -ENOSYS);
  FAILS(syscall(SYS_io_setup, 8, &context), ENOSYS);
  FAILS(syscall(SYS_io_uring_setup, 8, NULL), ENOSYS);
}

const struct subject_case aio_cases[] = {{"aio_calls", aio_calls},
                                         {"aio_notifies", aio_notifies},
                                         {"aio_lists", aio_lists},
                                         {"kernel_aio_is_refused", kernel_aio_is_refused},
                                         {NULL, NULL}};
