#define _GNU_SOURCE
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/unit/preload/subject.h"

static void write_family(void) {
  const int fd = subject_file("f");
  struct iovec parts[] = {{"ab", 2}, {"cde", 3}};
  REQUIRE(write(fd, "hello", 5) == 5);
  REQUIRE(writev(fd, parts, 2) == 5);
  REQUIRE(pwrite(fd, "pw", 2, 100) == 2);
  REQUIRE(pwrite64(fd, "pw64", 4, 200) == 4);
  REQUIRE(pwritev(fd, parts, 2, 300) == 5);
  REQUIRE(pwritev64(fd, parts, 2, 400) == 5);
  REQUIRE(pwritev2(fd, parts, 1, 500, 0) == 2);
  REQUIRE(pwritev64v2(fd, parts, 1, 600, 0) == 2);
  REQUIRE(pwritev2(fd, parts, 1, -1, 0) == 2);
  REQUIRE(lseek(fd, 0, SEEK_CUR) == 12);
}

static void write_by_number(void) {
  const int fd = subject_file("f");
  struct iovec parts[] = {{"ab", 2}, {"cde", 3}};
  REQUIRE(syscall(SYS_write, fd, "hello", 5L) == 5);
  REQUIRE(syscall(SYS_writev, fd, parts, 2) == 5);
  REQUIRE(syscall(SYS_pwrite64, fd, "pw", 2L, 100L) == 2);
  REQUIRE(syscall(SYS_pwritev, fd, parts, 2, 300L, 0L) == 5);
  REQUIRE(syscall(SYS_pwritev2, fd, parts, 1, 500L, 0L, 0) == 2);
  FAILS(syscall(SYS_write, 99, "x", 1L), EBADF);
  FAILS(syscall(SYS_pwrite64, fd, "x", 1L, -1L), EINVAL);
}

static void write_synchronous(void) {
  const int fd = subject_file("f");
  struct iovec part = {"ab", 2};
  REQUIRE(pwritev2(fd, &part, 1, 0, RWF_DSYNC) == 2);
  REQUIRE(pwritev2(fd, &part, 1, 2, RWF_SYNC) == 2);
  REQUIRE(pwritev2(fd, &part, 1, 0, RWF_APPEND) == 2);
  FAILS(pwritev2(fd, &part, 1, 0, 0x40000000), EOPNOTSUPP);
}

static void write_append(void) {
  const int fd = open("f", O_WRONLY | O_CREAT | O_APPEND, 0644);
  REQUIRE(write(fd, "one", 3) == 3);
  REQUIRE(lseek(fd, 0, SEEK_SET) == 0);
  REQUIRE(write(fd, "two", 3) == 3);
  /* Linux appends here too. */
  REQUIRE(pwrite(fd, "three", 5, 0) == 5);
  struct stat status;
  REQUIRE(fstat(fd, &status) == 0 && status.st_size == 11);
  REQUIRE(fcntl(fd, F_SETFL, 0) == 0);
  REQUIRE(pwrite(fd, "O", 1, 0) == 1);
  REQUIRE(fcntl(fd, F_SETFL, O_APPEND) == 0);
  REQUIRE(write(fd, "!", 1) == 1);
}

/* Run with SALIUS_DIRECT_APPEND=3: Linux appends the write. */
static void write_becomes_append(void) {
  const int fd = subject_file("f");
  REQUIRE(fd == 3);
  REQUIRE(ftruncate(fd, 5) == 0);
  REQUIRE(pwrite(fd, "x", 1, 0) == 1);
  struct stat status;
  REQUIRE(fstat(fd, &status) == 0 && status.st_size == 6);
}

/* Volatile, so that the compiler does not see what is wrong with them. */
static void* volatile no_address = (void*)8;
static volatile int too_many = IOV_MAX + 1;
static volatile int negative = -1;

static void write_errors(void) {
  const int fd = subject_file("f");
  struct iovec bad = {no_address, 4};
  FAILS(write(-1, "x", 1), EBADF);
  FAILS(write(99, "x", 1), EBADF);
  FAILS(pwrite(99, "x", 1, 0), EBADF);
  FAILS(pwrite(fd, "x", 1, -1), EINVAL);
  FAILS(write(fd, no_address, 4), EFAULT);
  FAILS(writev(fd, &bad, 1), EFAULT);
  FAILS(writev(fd, &bad, too_many), EINVAL);
  FAILS(pwritev(fd, &bad, negative, 0), EINVAL);
  FAILS(ftruncate(fd, -1), EINVAL);
  FAILS(ftruncate(99, 0), EBADF);
  FAILS(truncate("absent", 0), ENOENT);
  FAILS(truncate(".", 0), EISDIR);
  FAILS(fallocate(99, 0, 0, 1), EBADF);
  REQUIRE(posix_fallocate(99, 0, 1) == EBADF);
  errno = 0;
  REQUIRE(write(fd, "", 0) == 0);
  REQUIRE(write(fd, "x", 1) == 1);
  REQUIRE(errno == 0);
  REQUIRE(close(fd) == 0);
  FAILS(write(fd, "x", 1), EBADF);
}

static void write_others(void) {
  int pair[2];
  REQUIRE(pipe(pair) == 0);
  REQUIRE(write(pair[1], "x", 1) == 1);
  FAILS(pwrite(pair[1], "x", 1, 0), ESPIPE);
  REQUIRE(fsync(pair[1]) == -1 && errno == EINVAL);
  REQUIRE(close(pair[0]) == 0 && close(pair[1]) == 0);
  /* The number is a file of the volume next. */
  const int fd = subject_file("f");
  REQUIRE(fd == pair[0]);
  REQUIRE(write(fd, "y", 1) == 1);
}

static void write_direct(void) {
  const int fd = open("f", O_WRONLY | O_CREAT | O_DIRECT | O_DSYNC, 0644);
  static _Alignas(4096) char page[4096];
  if (fd < 0) _exit(77); /* the file system has none */
  REQUIRE(write(fd, page, sizeof(page)) == sizeof(page));
  FAILS(write(fd, page + 1, 100), EINVAL);
}

static void truncations(void) {
  const int fd = subject_file("f");
  REQUIRE(ftruncate(fd, 10) == 0);
  REQUIRE(ftruncate64(fd, 11) == 0);
  REQUIRE(truncate("f", 12) == 0);
  REQUIRE(truncate64("f", 13) == 0);
  REQUIRE(syscall(SYS_ftruncate, fd, 14L) == 0);
  REQUIRE(syscall(SYS_truncate, "f", 15L) == 0);
}

/* Returns whether a file was opened since the last call. */
static int was_opened(int watch) {
  char events[4096];
  const ssize_t size = read(watch, events, sizeof(events));
  REQUIRE(size > 0 || errno == EAGAIN);
  return size > 0;
}

/* A truncation by a path opens nothing: it needs no descriptor, keeps record locks, and is answered
   at once for a FIFO without a reader. */
static void truncations_by_path(void) {
  const int fd = subject_file("f");
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  REQUIRE(watch >= 0);
  REQUIRE(mkfifo("p", 0600) == 0);
  REQUIRE(mkdir("d", 0700) == 0);
  REQUIRE(inotify_add_watch(watch, "f", IN_OPEN) >= 0);
  REQUIRE(inotify_add_watch(watch, "p", IN_OPEN) >= 0);
  FAILS(truncate("p", 0), EINVAL);
  FAILS(truncate("d", 0), EISDIR);
  FAILS(truncate("/dev/null", 0), EINVAL);
  FAILS(truncate("", 0), ENOENT);
  FAILS(truncate("f", negative), EINVAL); /* uncovered all the same */
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  REQUIRE(fcntl(fd, F_SETLK, &lock) == 0);
  REQUIRE(symlink("f", "s") == 0);
  for (int i = 0; i < 3; ++i) REQUIRE(truncate("s", i) == 0);
  struct rlimit before;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const struct rlimit none = {0, before.rlim_max}; /* also for the record of this test */
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  REQUIRE(truncate("f", 10) == 0);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  struct stat status;
  REQUIRE(stat("f", &status) == 0 && status.st_size == 10);
  REQUIRE(!was_opened(watch));
  lock.l_type = F_WRLCK;
  REQUIRE(fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK);
}

static void allocations(void) {
  const int fd = subject_file("f");
  REQUIRE(fallocate(fd, 0, 0, 4096) == 0);
  REQUIRE(fallocate64(fd, 0, 0, 4096) == 0);
  REQUIRE(posix_fallocate(fd, 0, 4096) == 0);
  REQUIRE(posix_fallocate64(fd, 0, 4096) == 0);
  REQUIRE(syscall(SYS_fallocate, fd, 0, 0L, 4096L) == 0);
}

/* Requests of ioctl for the work of fallocate: of the kernel's include/linux/falloc.h. */
struct space_resv {
  int16_t l_type, l_whence;
  int64_t l_start, l_len;
  int32_t l_sysid;
  uint32_t l_pid;
  int32_t l_pad[4];
};
#define ADD_SPACE _IOW('X', 40, struct space_resv)
#define MAKE_HOLE _IOW('X', 41, struct space_resv)
#define MAKE_HOLE64 _IOW('X', 43, struct space_resv)
#define ZERO_SPACE _IOW('X', 57, struct space_resv)

/* A file system need not have the request. */
static int without(long result) { return result == -1 && (errno == EOPNOTSUPP || errno == ENOTTY); }

static void requests(void) {
  const int fd = subject_file("f");
  REQUIRE(ftruncate(fd, 8192) == 0);
  /* These only ask. */
  long number = 0;
  struct fsxattr attributes;
  REQUIRE(ioctl(fd, FIGETBSZ, &number) == 0);
  REQUIRE(ioctl(fd, FIONREAD, &number) == 0);
  int result = ioctl(fd, FS_IOC_GETFLAGS, &number);
  REQUIRE(result == 0 || without(result));
  result = ioctl(fd, FS_IOC_FSGETXATTR, &attributes);
  REQUIRE(result == 0 || without(result));
  /* These change bytes. */
  struct space_resv range = {.l_whence = SEEK_SET, .l_start = 0, .l_len = 4096};
  result = ioctl(fd, ZERO_SPACE, &range);
  REQUIRE(result == 0 || without(result));
  result = ioctl(fd, MAKE_HOLE, &range);
  REQUIRE(result == 0 || without(result));
  result = (int)syscall(SYS_ioctl, fd, MAKE_HOLE64, &range);
  REQUIRE(result == 0 || without(result));
  FAILS(ioctl(99, MAKE_HOLE, &range), EBADF);
}

static void change_synchronous(void) {
  const int full = open("f", O_WRONLY | O_CREAT | O_SYNC, 0644);
  REQUIRE(fallocate(full, 0, 0, 4096) == 0);
  REQUIRE(posix_fallocate(full, 4096, 4096) == 0);
  struct space_resv range = {.l_whence = SEEK_SET, .l_start = 0, .l_len = 4096};
  REQUIRE(ioctl(full, ADD_SPACE, &range) == 0);
  const int data = open("g", O_WRONLY | O_CREAT | O_DSYNC, 0644);
  REQUIRE(fallocate64(data, 0, 0, 4096) == 0);
  FAILS(fallocate(data, 0, -1, 4096), EINVAL);
}

static void copies(void) {
  const int from = open("/proc/self/exe", O_RDONLY);
  const int to = subject_file("f");
  off_t offset = 0;
  REQUIRE(sendfile(to, from, &offset, 10) == 10);
  REQUIRE(sendfile64(to, from, &offset, 10) == 10);
  const int source = subject_file("source");
  REQUIRE(write(source, "hello", 5) == 5);
  loff_t start = 0;
  REQUIRE(copy_file_range(source, &start, to, NULL, 5, 0) == 5);
  int pair[2];
  REQUIRE(pipe(pair) == 0 && write(pair[1], "x", 1) == 1);
  REQUIRE(splice(pair[0], NULL, to, NULL, 1, 0) == 1);
  ioctl(to, FICLONE, source);
  FAILS(ioctl(99, FICLONE, source), EBADF);
  FAILS(sendfile(99, from, NULL, 1), EBADF);
}

static void copy_synchronous(void) {
  const int from = subject_file("source");
  REQUIRE(write(from, "hello", 5) == 5);
  const int to = open("f", O_WRONLY | O_CREAT | O_SYNC, 0644);
  loff_t start = 0;
  REQUIRE(copy_file_range(from, &start, to, NULL, 5, 0) == 5);
}

/* With _FORTIFY_SOURCE a compiler calls these in the place of dprintf and vdprintf. */
int __dprintf_chk(int fd, int flag, const char* format, ...);
int __vdprintf_chk(int fd, int flag, const char* format, va_list values);

static int print_list(int checked, int fd, const char* format, ...) {
  va_list values;
  va_start(values, format);
  const int printed =
      checked ? __vdprintf_chk(fd, 1, format, values) : vdprintf(fd, format, values);
  va_end(values);
  return printed;
}

static void prints(void) {
  const int fd = open("f", O_RDWR | O_CREAT | O_APPEND, 0644);
  REQUIRE(fsync(fd) == 0);
  REQUIRE(dprintf(fd, "%s %d\n", "commit", 1) == 9);
  REQUIRE(print_list(0, fd, "%s %d\n", "commit", 2) == 9);
  REQUIRE(__dprintf_chk(fd, 1, "%s %d\n", "commit", 3) == 9);
  REQUIRE(print_list(1, fd, "%s %d\n", "commit", 4) == 9);
  char text[37] = "";
  REQUIRE(pread(fd, text, sizeof(text), 0) == 36);
  REQUIRE(strcmp(text, "commit 1\ncommit 2\ncommit 3\ncommit 4\n") == 0);
  void* frames[4];
  backtrace_symbols_fd(frames, backtrace(frames, 4), fd);
  REQUIRE(lseek(fd, 0, SEEK_END) > 36);
  FAILS(dprintf(99, "x"), EBADF);
}

static void print_synchronous(void) {
  const int full = open("f", O_WRONLY | O_CREAT | O_SYNC, 0644);
  REQUIRE(dprintf(full, "line\n") == 5);
  const int data = open("g", O_WRONLY | O_CREAT | O_DSYNC, 0644);
  REQUIRE(__dprintf_chk(data, 1, "line\n") == 5);
}

static void descriptor_received(void) {
  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const int fd = open("f", O_WRONLY | O_CREAT | O_SYNC, 0644);
  char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
  struct iovec part = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  REQUIRE(sendmsg(pair[0], &message, 0) == 1);
  REQUIRE(close(fd) == 0);
  REQUIRE(recvmsg(pair[1], &message, 0) == 1);
  int received;
  memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(received));
  REQUIRE((fcntl(received, F_GETFL) & O_SYNC) == O_SYNC);
  REQUIRE(write(received, "x", 1) == 1);
}

const struct subject_case write_cases[] = {{"write_family", write_family},
                                           {"write_by_number", write_by_number},
                                           {"write_synchronous", write_synchronous},
                                           {"write_append", write_append},
                                           {"write_becomes_append", write_becomes_append},
                                           {"write_errors", write_errors},
                                           {"write_others", write_others},
                                           {"write_direct", write_direct},
                                           {"truncations", truncations},
                                           {"truncations_by_path", truncations_by_path},
                                           {"allocations", allocations},
                                           {"requests", requests},
                                           {"change_synchronous", change_synchronous},
                                           {"copies", copies},
                                           {"copy_synchronous", copy_synchronous},
                                           {"prints", prints},
                                           {"print_synchronous", print_synchronous},
                                           {"descriptor_received", descriptor_received},
                                           {NULL, NULL}};
