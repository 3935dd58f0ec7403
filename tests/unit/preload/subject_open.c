#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/preload/subject.h"

int __open_2(const char*, int);
int __open64_2(const char*, int);
int __openat_2(int, const char*, int);
int __openat64_2(int, const char*, int);

static void used(int fd) {
  REQUIRE(fd >= 0);
  REQUIRE(write(fd, "x", 1) == 1);
  REQUIRE(close(fd) == 0);
}

static void open_family(void) {
  used(open("open", O_WRONLY | O_CREAT, 0600));
  used(open64("open64", O_WRONLY | O_CREAT | O_EXCL, 0600));
  used(openat(AT_FDCWD, "openat", O_WRONLY | O_CREAT, 0600));
  used(openat64(AT_FDCWD, "openat64", O_WRONLY | O_CREAT, 0600));
  used(creat("creat", 0600));
  used(creat64("creat64", 0600));
  struct stat status;
  REQUIRE(stat("open", &status) == 0 && (status.st_mode & 07777) == 0600);
}

static void open_fortified(void) {
  REQUIRE(close(creat("f", 0600)) == 0);
  used(__open_2("f", O_WRONLY));
  used(__open64_2("f", O_WRONLY));
  used(__openat_2(AT_FDCWD, "f", O_WRONLY));
  used(__openat64_2(AT_FDCWD, "f", O_WRONLY));
}

static void open_by_number(void) {
  used(syscall(SYS_open, "open", O_WRONLY | O_CREAT, 0600));
  used(syscall(SYS_openat, AT_FDCWD, "openat", O_WRONLY | O_CREAT, 0600));
  used(syscall(SYS_creat, "creat", 0600));
  struct open_how how = {.flags = O_WRONLY | O_CREAT | O_EXCL, .mode = 0600};
  used(syscall(SYS_openat2, AT_FDCWD, "openat2", &how, sizeof(how)));
  FAILS(syscall(SYS_openat2, AT_FDCWD, "openat2", NULL, sizeof(how)), EFAULT);
}

static void open_errors(void) {
  FAILS(open("absent", O_WRONLY), ENOENT);
  FAILS(open("absent/x", O_WRONLY | O_CREAT, 0600), ENOENT);
  FAILS(openat(99, "x", O_WRONLY | O_CREAT, 0600), EBADF);
  REQUIRE(close(creat("f", 0600)) == 0);
  FAILS(open("f", O_WRONLY | O_CREAT | O_EXCL, 0600), EEXIST);
  FAILS(open("f", O_WRONLY | O_DIRECTORY), ENOTDIR);
  errno = 0;
  used(open("f", O_WRONLY));
  REQUIRE(errno == 0);
}

static void open_for_reading(void) {
  REQUIRE(close(creat("f", 0600)) == 0);
  const int fd = open("f", O_RDONLY);
  FAILS(write(fd, "x", 1), EBADF);
  REQUIRE(fsync(fd) == 0);
  REQUIRE(close(fd) == 0);
  const int path = open("f", O_PATH);
  FAILS(write(path, "x", 1), EBADF);
  FAILS(fsync(path), EBADF);
}

static void open_truncates(void) {
  used(creat("f", 0600));
  used(open("f", O_WRONLY | O_TRUNC));
}

/* Fails each openat(2) by which the kernel would cut a file. */
static void forbid_cuts(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_TRUNC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
  REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void open_truncates_known(void) {
  used(creat("f", 0600));
  forbid_cuts();
  FAILS(creat("g", 0600), EPERM); /* not known: the kernel's business */
  errno = 0;
  used(open("f", O_WRONLY | O_TRUNC));
  used(open64("f", O_RDWR | O_TRUNC | O_CREAT, 0600));
  used(openat(AT_FDCWD, "f", O_WRONLY | O_TRUNC | O_APPEND));
  used(openat64(AT_FDCWD, "f", O_WRONLY | O_TRUNC));
  used(creat("f", 0600));
  used(creat64("f", 0600));
  used(__open_2("f", O_WRONLY | O_TRUNC));
  used(__openat64_2(AT_FDCWD, "f", O_WRONLY | O_TRUNC));
  REQUIRE(errno == 0);
  struct stat status;
  REQUIRE(stat("f", &status) == 0 && status.st_size == 1);
  FAILS(open("f", O_WRONLY | O_TRUNC | O_CREAT | O_EXCL, 0600), EEXIST);
  FAILS(open("f", O_WRONLY | O_TRUNC | O_DIRECTORY), ENOTDIR);
}

static void open_truncates_unseen(void) {
  used(creat("f", 0600));
  REQUIRE(close(open("f", O_RDONLY | O_TRUNC)) == 0);
  REQUIRE(fclose(fopen("f", "w")) == 0);
  used(syscall(SYS_open, "f", O_WRONLY | O_TRUNC, 0));
  used(syscall(SYS_creat, "f", 0600));
  struct open_how how = {.flags = O_WRONLY | O_TRUNC};
  used(syscall(SYS_openat2, AT_FDCWD, "f", &how, sizeof(how)));
  FAILS(syscall(SYS_openat, AT_FDCWD, "f", O_WRONLY | O_TRUNC | O_DIRECTORY), ENOTDIR);
}

static void open_outside(void) {
  char name[] = "/tmp/salius-preload-XXXXXX";
  const int fd = mkostemp(name, O_SYNC);
  REQUIRE(fd >= 0);
  REQUIRE(unlink(name) == 0);
  REQUIRE((fcntl(fd, F_GETFL) & O_SYNC) == O_SYNC);
  REQUIRE((syscall(SYS_fcntl, fd, F_GETFL) & O_SYNC) == O_SYNC);
  used(fd);
}

static void open_temporary(void) {
  char one[] = "one-XXXXXX", two[] = "two-XXXXXX", three[] = "three-XXXXXX.c",
       four[] = "four-XXXXXX.c", five[] = "five-XXXXXX", six[] = "six-XXXXXX",
       seven[] = "seven-XXXXXX.c", eight[] = "eight-XXXXXX.c";
  used(mkstemp(one));
  used(mkostemp(two, O_APPEND));
  used(mkstemps(three, 2));
  used(mkostemps(four, 2, O_CLOEXEC));
  used(mkstemp64(five));
  used(mkostemp64(six, 0));
  used(mkstemps64(seven, 2));
  used(mkostemps64(eight, 2, 0));
  char wrong[] = "wrong";
  FAILS(mkstemp(wrong), EINVAL);
}

static void sync_flag(void) {
  const int fd = open("f", O_RDWR | O_CREAT | O_SYNC, 0600);
  REQUIRE((fcntl(fd, F_GETFL) & O_SYNC) == O_SYNC);
  REQUIRE((fcntl64(fd, F_GETFL) & O_SYNC) == O_SYNC);
  REQUIRE(fcntl(fd, F_GETSIG) == 0);
  REQUIRE(write(fd, "a", 1) == 1);
  const int other = dup(fd);
  REQUIRE((fcntl(other, F_GETFL) & O_SYNC) == O_SYNC);
  REQUIRE(write(other, "b", 1) == 1);
  REQUIRE(fcntl(fd, F_GETFD) == 0);
}

static void data_sync_flag(void) {
  const int fd = open("f", O_RDWR | O_CREAT | O_DSYNC | O_CLOEXEC | O_EXCL | O_APPEND, 0600);
  const int flags = fcntl(fd, F_GETFL);
  REQUIRE((flags & O_SYNC) == O_DSYNC);
  REQUIRE((flags & O_APPEND) != 0);
  REQUIRE(fcntl(fd, F_GETFD) == FD_CLOEXEC);
  REQUIRE(pwrite(fd, "a", 1, 0) == 1);
}

/* Without a look at the lock, the library's own close of the file would drop it. */
static void sync_flag_keeps_locks(void) {
  const int fd = subject_file("f");
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  REQUIRE(fcntl(fd, F_SETLK, &lock) == 0);
  const int second = open("f", O_RDWR | O_SYNC);
  REQUIRE(second >= 0);
  struct flock seen = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  REQUIRE(fcntl(second, F_OFD_GETLK, &seen) == 0);
  REQUIRE(seen.l_type == F_WRLCK);
  REQUIRE(write(second, "a", 1) == 1);
}

static void stdio_open(void) {
  FILE* stream = fopen("w", "w");
  REQUIRE(fputs("hello", stream) >= 0);
  REQUIRE(fflush(stream) == 0);
  REQUIRE(fsync(fileno(stream)) == 0);
  REQUIRE(fclose(stream) == 0);
  stream = fopen64("w", "r");
  REQUIRE(fgetc(stream) == 'h');
  stream = freopen("a", "a", stream);
  REQUIRE(stream != NULL);
  stream = freopen64("b", "wx", stream);
  REQUIRE(stream != NULL);
  REQUIRE(fclose(stream) == 0);
  const int fd = subject_file("d");
  stream = fdopen(fd, "r+");
  REQUIRE(stream != NULL && fclose(stream) == 0);
  errno = 0;
  REQUIRE(fopen("absent/x", "w") == NULL && errno == ENOENT);
  stream = fdopen(subject_file("r"), "r");
  REQUIRE(stream != NULL && fclose(stream) == 0);
}

static void stdio_temporary(void) {
  FILE* stream = tmpfile();
  REQUIRE(stream != NULL && fclose(stream) == 0);
  stream = tmpfile64();
  REQUIRE(stream != NULL && fclose(stream) == 0);
}

static void standard_output(void) {
  const int fd = subject_file("out");
  REQUIRE(dup2(fd, 1) == 1);
  REQUIRE(write(1, "x", 1) == 1);
  REQUIRE(fsync(1) == 0);
}

const struct subject_case open_cases[] = {{"open_family", open_family},
                                          {"open_fortified", open_fortified},
                                          {"open_by_number", open_by_number},
                                          {"open_errors", open_errors},
                                          {"open_for_reading", open_for_reading},
                                          {"open_truncates", open_truncates},
                                          {"open_truncates_known", open_truncates_known},
                                          {"open_truncates_unseen", open_truncates_unseen},
                                          {"open_outside", open_outside},
                                          {"open_temporary", open_temporary},
                                          {"sync_flag", sync_flag},
                                          {"data_sync_flag", data_sync_flag},
                                          {"sync_flag_keeps_locks", sync_flag_keeps_locks},
                                          {"stdio_open", stdio_open},
                                          {"stdio_temporary", stdio_temporary},
                                          {"standard_output", standard_output},
                                          {NULL, NULL}};
