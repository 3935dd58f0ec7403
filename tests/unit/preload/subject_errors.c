/* Prints what calls return that fail, and which calls act on a cancellation, to standard error: the
   test compares the text with and without the library. */
#define _GNU_SOURCE
#include <aio.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/unit/preload/subject.h"

static void show(const char* call, long result) {
  const int error = errno;
  fprintf(stderr, "%s: %ld errno %d\n", call, result, error);
}

#define SHOW(call)             \
  do {                         \
    errno = 0;                 \
    show(#call, (long)(call)); \
  } while (0)

/* Hides a constant from the compiler, which would warn of it. */
static void* volatile wrong_address = (void*)8;
static volatile int minus_one = -1;
static volatile int too_many = IOV_MAX + 1;

/* Descriptors: `fd` is a file of the volume, `reads` is open for reading only, 99 is none. */
static void bad_writes(int fd, int reads, int directory) {
  struct iovec part = {"x", 1}, bad = {wrong_address, 4};
  for (int i = 0; i < 4; ++i) {
    const int one = (const int[]){99, minus_one, reads, directory}[i];
    SHOW(write(one, "x", 1));
    SHOW(pwrite(one, "x", 1, 0));
    SHOW(pwrite64(one, "x", 1, 0));
    SHOW(writev(one, &part, 1));
    SHOW(pwritev(one, &part, 1, 0));
    SHOW(pwritev64(one, &part, 1, 0));
    SHOW(pwritev2(one, &part, 1, 0, 0));
    SHOW(pwritev64v2(one, &part, 1, 0, RWF_SYNC));
    SHOW(ftruncate(one, 0));
    SHOW(ftruncate64(one, 0));
    SHOW(fallocate(one, 0, 0, 1));
    SHOW(posix_fallocate(one, 0, 1));
    SHOW(sendfile(one, reads, NULL, 1));
    SHOW(copy_file_range(reads, NULL, one, NULL, 1, 0));
    SHOW(splice(reads, NULL, one, NULL, 1, 0));
  }
  SHOW(write(fd, wrong_address, 4));
  SHOW(pwrite(fd, wrong_address, 4, 0));
  SHOW(writev(fd, &bad, 1));
  SHOW(pwritev(fd, &bad, 1, 0));
  SHOW(pwritev2(fd, &bad, 1, 0, 0));
  SHOW(pwrite(fd, "x", 1, minus_one));
  SHOW(pwritev(fd, &part, 1, minus_one));
  SHOW(pwritev2(fd, &part, 1, -2, 0));
  SHOW(pwritev2(fd, &part, 1, 0, 1 << 30));
  SHOW(writev(fd, &part, too_many));
  SHOW(writev(fd, &part, minus_one));
  SHOW(ftruncate(fd, minus_one));
  SHOW(fallocate(fd, 0, minus_one, 1));
  SHOW(fallocate(fd, 1 << 30, 0, 1));
  SHOW(posix_fallocate(fd, 0, 0));
  SHOW(copy_file_range(reads, NULL, fd, NULL, 1, 1));
  SHOW(write(fd, "", 0));
}

static void bad_descriptors(int fd, int directory) {
  for (int i = 0; i < 2; ++i) {
    const int one = i == 0 ? 99 : minus_one;
    SHOW(close(one));
    SHOW(dup(one));
    SHOW(dup2(one, 50));
    SHOW(dup3(one, 50, 0));
    SHOW(fcntl(one, F_GETFL));
    SHOW(fcntl64(one, F_SETFL, 0));
    SHOW(fcntl(one, F_DUPFD, 0));
    SHOW(fsync(one));
    SHOW(fdatasync(one));
    SHOW(syncfs(one));
    SHOW(sync_file_range(one, 0, 0, 0));
    SHOW(fchmod(one, 0600));
    SHOW(fchown(one, 0, 0));
    SHOW(futimens(one, NULL));
    SHOW(fsetxattr(one, "user.x", "1", 1, 0));
    SHOW(fremovexattr(one, "user.x"));
    SHOW(fdopen(one, "w"));
    SHOW(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, one, 0) == MAP_FAILED);
  }
  SHOW(fsync(directory));
  SHOW(fdatasync(directory));
  SHOW(dup3(fd, fd, 0));
  SHOW(dup2(fd, minus_one));
  SHOW(dup3(fd, 50, 1 << 30));
  SHOW(fcntl(fd, F_DUPFD, minus_one));
  SHOW(fcntl(fd, 9999, 0));
  SHOW(close_range(5, 4, 0));
  SHOW(close_range(60, 61, 1 << 30));
  SHOW(mmap(NULL, 0, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
  SHOW(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 1) == MAP_FAILED);
  SHOW(mmap(NULL, 4096, PROT_READ | PROT_WRITE, 0, fd, 0) == MAP_FAILED);
  SHOW(munmap((void*)1, 4096));
  SHOW(mremap((void*)4096, 4096, 8192, 0) == MAP_FAILED);
  SHOW(msync((void*)4096, 4096, MS_SYNC));
  SHOW(msync((void*)4096, 4096, MS_SYNC | MS_ASYNC));
  SHOW(mprotect((void*)4096, 4096, PROT_READ));
}

static void bad_names(void) {
  char wrong[] = "wrong", absent[] = "absent/XXXXXX";
  SHOW(open("absent", O_WRONLY));
  SHOW(open64("f", O_WRONLY | O_CREAT | O_EXCL, 0600));
  SHOW(openat(99, "f", O_WRONLY));
  SHOW(openat64(AT_FDCWD, "f/x", O_WRONLY));
  SHOW(open(".", O_WRONLY));
  SHOW(open(wrong_address, O_WRONLY));
  SHOW(creat("absent/f", 0600));
  SHOW(fopen("absent", "r+") == NULL);
  SHOW(fopen("f", "?") == NULL);
  SHOW(mkstemp(wrong));
  SHOW(mkostemps(absent, 0, 0));
  SHOW(truncate("absent", 0));
  SHOW(truncate(".", 0));
  SHOW(truncate64("f", minus_one));
  SHOW(rename("absent", "g"));
  SHOW(rename("f", "absent/g"));
  SHOW(renameat2(AT_FDCWD, "f", AT_FDCWD, "f", RENAME_NOREPLACE));
  SHOW(link("absent", "g"));
  SHOW(link("f", "f"));
  SHOW(linkat(99, "f", AT_FDCWD, "g", 0));
  SHOW(symlink("f", "f"));
  SHOW(unlink("absent"));
  SHOW(unlink("."));
  SHOW(unlinkat(AT_FDCWD, "f", AT_REMOVEDIR));
  SHOW(remove("absent"));
  SHOW(mkdir("f", 0700));
  SHOW(rmdir("f"));
  SHOW(chmod("absent", 0600));
  SHOW(fchmodat(AT_FDCWD, "absent", 0600, 0));
  SHOW(chown("absent", 0, 0));
  SHOW(setxattr("absent", "user.x", "1", 1, 0));
  SHOW(removexattr("f", "user.absent"));
}

static void error_results(void) {
  const int fd = subject_file("f");
  REQUIRE(write(fd, "x", 1) == 1);
  const int reads = open("f", O_RDONLY);
  const int directory = open(".", O_RDONLY | O_DIRECTORY);
  bad_writes(fd, reads, directory);
  bad_descriptors(fd, directory);
  bad_names();
  REQUIRE(close(fd) == 0);
  SHOW(write(fd, "x", 1));
  SHOW(fsync(fd));
}

/* ---- Cancellation points: a call acts on a cancel that came before. */
static int cancel_fd;

#define POINTS(X)                                                          \
  X(open, open("f", O_WRONLY))                                             \
  X(openat, openat(AT_FDCWD, "f", O_WRONLY))                               \
  X(creat, creat("g", 0600))                                               \
  X(close, close(dup_of_it))                                               \
  X(write, write(cancel_fd, "x", 1))                                       \
  X(pwrite, pwrite(cancel_fd, "x", 1, 0))                                  \
  X(writev, writev(cancel_fd, &part, 1))                                   \
  X(pwritev, pwritev(cancel_fd, &part, 1, 0))                              \
  X(pwritev2, pwritev2(cancel_fd, &part, 1, 0, 0))                         \
  X(fsync, fsync(cancel_fd))                                               \
  X(fdatasync, fdatasync(cancel_fd))                                       \
  X(syncfs, syncfs(cancel_fd))                                             \
  X(msync, msync(page, 4096, MS_SYNC))                                     \
  X(ftruncate, ftruncate(cancel_fd, 10))                                   \
  X(fallocate, fallocate(cancel_fd, 0, 0, 10))                             \
  X(posix_fallocate, posix_fallocate(cancel_fd, 0, 10))                    \
  X(sync_file_range, sync_file_range(cancel_fd, 0, 0, 0))                  \
  X(copy_file_range, copy_file_range(cancel_fd, &from, cancel_fd, &to, 1, 0)) \
  X(fcntl, fcntl(cancel_fd, F_GETFL))                                      \
  X(dup, close(dup(cancel_fd)))                                            \
  X(rename, rename("r", "s"))

#define DEFINE(name, call)                                                        \
  static void* point_##name(void* page) {                                         \
    struct iovec part = {"x", 1};                                                 \
    off64_t from = 0, to = 4096;                                                  \
    const int dup_of_it = dup(cancel_fd);                                         \
    (void)part, (void)from, (void)to, (void)dup_of_it, (void)page;                \
    REQUIRE(pthread_cancel(pthread_self()) == 0);                                 \
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);                          \
    (void)!(call);                                                                \
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);                         \
    return page;                                                                  \
  }
POINTS(DEFINE)

static void* begin(void* which) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  void* page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, cancel_fd, 0);
  REQUIRE(page != MAP_FAILED);
  return ((void* (*)(void*))which)(page);
}

static void show_point(const char* name, void* (*point)(void*)) {
  pthread_t thread;
  void* result = NULL;
  REQUIRE(pthread_create(&thread, NULL, begin, (void*)point) == 0);
  REQUIRE(pthread_join(thread, &result) == 0);
  fprintf(stderr, "%s %s\n", name, result == PTHREAD_CANCELED ? "is cancelled" : "is not");
}

static void cancellation_points(void) {
  cancel_fd = subject_file("f");
  REQUIRE(ftruncate(cancel_fd, 8192) == 0);
  REQUIRE(close(subject_file("r")) == 0);
#define SHOW_POINT(name, call) show_point(#name, point_##name);
  POINTS(SHOW_POINT)
}

const struct subject_case error_cases[] = {{"error_results", error_results},
                                           {"cancellation_points", cancellation_points},
                                           {NULL, NULL}};
