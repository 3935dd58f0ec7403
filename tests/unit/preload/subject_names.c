#define _GNU_SOURCE
#include <aio.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

static char* descriptor_path(int fd) {
  static char path[32];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  return path;
}

/* From now on no directory can be opened by O_PATH alone, as where no descriptor is left. */
static void refuse_looks_at_directories(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EMFILE),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* As a mount: no name and no file crosses the border, and no name is lost. */
static void names_across_the_border(void) {
  REQUIRE(close(subject_file("f")) == 0);
  REQUIRE(close(syscall(SYS_openat, AT_FDCWD, "../other", O_WRONLY | O_CREAT, 0600L)) == 0);
  REQUIRE(mkdir("d", 0700) == 0);
  REQUIRE(mkdir("../e", 0700) == 0);
  const int above = open("..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(above >= 0);
  FAILS(rename("f", "../f"), EXDEV);
  FAILS(rename("../other", "f"), EXDEV);
  FAILS(rename("d", "../d"), EXDEV);
  FAILS(rename("d/", "..//d//"), EXDEV);
  FAILS(rename("../e", "d/e"), EXDEV);
  FAILS(renameat(AT_FDCWD, "f", above, "f"), EXDEV);
  FAILS(renameat2(above, "other", AT_FDCWD, "d/g", RENAME_NOREPLACE), EXDEV);
  FAILS(renameat2(AT_FDCWD, "f", above, "other", RENAME_EXCHANGE), EXDEV);
  FAILS(syscall(SYS_rename, "f", "../f"), EXDEV);
  FAILS(link("f", "../f"), EXDEV);
  FAILS(link("../other", "f2"), EXDEV);
  FAILS(link("f", "../other"), EEXIST);
  FAILS(linkat(AT_FDCWD, "f", above, "f", 0), EXDEV);
  REQUIRE(symlink("../other", "s") == 0);
  FAILS(linkat(AT_FDCWD, "s", AT_FDCWD, "t", AT_SYMLINK_FOLLOW), EXDEV);
  REQUIRE(linkat(AT_FDCWD, "s", AT_FDCWD, "t", 0) == 0);
  FAILS(syscall(SYS_link, "f", "../f"), EXDEV);
  REQUIRE(close(above) == 0);

  const int unnamed = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  REQUIRE(unnamed >= 0);
  const char* const path = descriptor_path(unnamed);
  FAILS(linkat(AT_FDCWD, path, AT_FDCWD, "../u", AT_SYMLINK_FOLLOW), EXDEV);
  REQUIRE(linkat(AT_FDCWD, path, AT_FDCWD, "u", AT_SYMLINK_FOLLOW) == 0);
  FAILS(linkat(unnamed, "", AT_FDCWD, "../v", AT_EMPTY_PATH), EXDEV);
  REQUIRE(close(unnamed) == 0);

  /* A name that stays on one side works. */
  REQUIRE(rename("../other", "../e/other") == 0);
  REQUIRE(rename("f", "d/f") == 0);
  REQUIRE(rename("d/f", "../volume/f") == 0);
  REQUIRE(link("f", "d/f") == 0);
  FAILS(rename("absent/f", "../f"), ENOENT);
  FAILS(rename("", "../f"), ENOENT);
  FAILS(link("absent", "../f"), ENOENT);

  refuse_looks_at_directories();
  REQUIRE(rename("d/f", "f") == 0);
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

/* Calls that the headers of this C library do not have. */
enum { FCHMODAT2 = 452, SETXATTRAT = 463, REMOVEXATTRAT = 466 };
struct value_of_xattr {
  uint64_t value;
  uint32_t size, flags;
};

/* On a kernel without the call the older one has to do. */
static int old_kernel(long result) {
  REQUIRE(result == 0 || errno == ENOSYS);
  return result != 0;
}

static void attributes_by_new_numbers(void) {
  const int fd = subject_file("f");
  const struct value_of_xattr value = {(uintptr_t) "1", 1, 0};
  const long size = sizeof(value), empty = AT_EMPTY_PATH, link = AT_SYMLINK_NOFOLLOW;
  REQUIRE(symlink("f", "s") == 0);
  if (old_kernel(syscall(FCHMODAT2, AT_FDCWD, "f", 0600L, 0L))) fchmod(fd, 0600);
  if (old_kernel(syscall(FCHMODAT2, AT_FDCWD, "s", 0600L, 0L))) fchmod(fd, 0600);
  if (old_kernel(syscall(FCHMODAT2, fd, "", 0600L, empty))) fchmod(fd, 0600);
  if (old_kernel(syscall(SETXATTRAT, AT_FDCWD, "f", link, "user.x", &value, size))) {
    fsetxattr(fd, "user.x", "1", 1, 0);
  }
  if (old_kernel(syscall(SETXATTRAT, fd, "", empty, "user.x", &value, size))) {
    fsetxattr(fd, "user.x", "1", 1, 0);
  }
  if (old_kernel(syscall(REMOVEXATTRAT, AT_FDCWD, "f", 0L, "user.x"))) fremovexattr(fd, "user.x");
  REQUIRE(syscall(FCHMODAT2, AT_FDCWD, "absent", 0600L, 0L) == -1);
}

static void attributes_of_a_descriptor(void) {
  const int fd = subject_file("f");
  REQUIRE(fchownat(fd, "", getuid(), getgid(), AT_EMPTY_PATH) == 0);
  const int place = open("f", O_PATH | O_CLOEXEC);
  REQUIRE(place >= 0);
  REQUIRE(fchownat(place, "", getuid(), getgid(), AT_EMPTY_PATH) == 0);
  /* The C library before 2.39 refuses the flag. */
  if (fchmodat(fd, "", 0600, AT_EMPTY_PATH) != 0) {
    REQUIRE(errno == EINVAL || errno == EOPNOTSUPP);
    REQUIRE(fchmod(fd, 0600) == 0);
  }
}

/* The owner, even if it is root, may no longer read what its mode forbids. */
static void without_capabilities(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2];
  REQUIRE(syscall(SYS_capget, &header, data) == 0);
  data[0].effective &= ~((1u << CAP_DAC_OVERRIDE) | (1u << CAP_DAC_READ_SEARCH));
  REQUIRE(syscall(SYS_capset, &header, data) == 0);
}

static void attributes_of_the_unreadable(void) {
  REQUIRE(close(subject_file("f")) == 0);
  const int directory = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(directory >= 0);
  const int reader = open("f", O_RDONLY | O_CLOEXEC);
  REQUIRE(reader >= 0);
  without_capabilities();
  REQUIRE(chmod("f", 0200) == 0);
  FAILS(open("f", O_RDONLY | O_CLOEXEC), EACCES);
  REQUIRE(lsetxattr("f", "user.x", "1", 1, 0) == 0);
  REQUIRE(chmod("f", 0) == 0);
  REQUIRE(fchmodat(directory, "f", 0, 0) == 0);
  REQUIRE(fchownat(directory, "f", getuid(), getgid(), AT_SYMLINK_NOFOLLOW) == 0);
  REQUIRE(fchmod(reader, 0) == 0);
  REQUIRE(link("f", "g") == 0);
  REQUIRE(rename("f", "h") == 0);
}

/* Returns whether something was opened since the last call. */
static int was_opened(int watch) {
  char events[4096];
  const ssize_t size = read(watch, events, sizeof(events));
  REQUIRE(size > 0 || errno == EAGAIN);
  return size > 0;
}

static void attributes_open_nothing(void) {
  REQUIRE(mkfifo("p", 0600) == 0);
  REQUIRE(close(subject_file("f")) == 0);
  REQUIRE(close(syscall(SYS_openat, AT_FDCWD, "../other", O_WRONLY | O_CREAT, 0600L)) == 0);
  const int directory = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(directory >= 0);
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  REQUIRE(watch >= 0);
  const char* const paths[] = {"p", "f", "../other"};
  for (int i = 0; i < 3; ++i) REQUIRE(inotify_add_watch(watch, paths[i], IN_OPEN) >= 0);
  for (int i = 0; i < 3; ++i) {
    const char* const path = paths[i];
    REQUIRE(fchmodat(directory, path, 0600, 0) == 0 && !was_opened(watch));
    REQUIRE(fchownat(directory, path, getuid(), getgid(), 0) == 0 && !was_opened(watch));
    REQUIRE(chmod(path, 0600) == 0 && !was_opened(watch));
    const int fd = syscall(SYS_openat, directory, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(was_opened(watch));
    REQUIRE(close(fd) == 0);
  }
}

static void attributes_of_the_locked(void) {
  const int fd = subject_file("f");
  const int next = dup(fd);
  REQUIRE(next >= 0 && close(next) == 0); /* before there is a lock, which close(2) drops */
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  REQUIRE(fcntl(fd, F_SETLK, &lock) == 0);
  for (int i = 0; i < 3; ++i) REQUIRE(lsetxattr("f", "user.x", "1", 1, 0) == 0);
  REQUIRE(dup(fd) == next);
  lock.l_type = F_WRLCK;
  REQUIRE(fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK);
}

/* A child of vfork(2) may take no lock of its parent's, as a handler in the library may not. */
static void attributes_in_a_borrower(void) {
  REQUIRE(close(subject_file("f")) == 0);
  const pid_t child = vfork();
  if (child == 0) {
    _exit(chmod("f", 0640) == 0 && rename("f", "g") == 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child && status == 0);
}

const struct subject_case name_cases[] = {
    {"names", names},
    {"names_of_others", names_of_others},
    {"names_across_the_border", names_across_the_border},
    {"attributes", attributes},
    {"attributes_by_number", attributes_by_number},
    {"attributes_by_new_numbers", attributes_by_new_numbers},
    {"attributes_of_a_descriptor", attributes_of_a_descriptor},
    {"attributes_of_the_unreadable", attributes_of_the_unreadable},
    {"attributes_open_nothing", attributes_open_nothing},
    {"attributes_of_the_locked", attributes_of_the_locked},
    {"attributes_in_a_borrower", attributes_in_a_borrower},
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
