#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/preload/subject.h"

/* The descriptor that the library of the tests keeps for itself. */
enum { OWN = 500 };

static int is_open(int fd) { return syscall(SYS_fcntl, fd, F_GETFD) >= 0; }

static void dup_family(void) {
  const int fd = subject_file("f");
  const int one = dup(fd);
  REQUIRE(write(one, "1", 1) == 1);
  REQUIRE(dup2(fd, 50) == 50);
  REQUIRE(write(50, "2", 1) == 1);
  REQUIRE(dup3(fd, 51, O_CLOEXEC) == 51);
  REQUIRE(write(51, "3", 1) == 1);
  const int four = fcntl(fd, F_DUPFD, 60);
  REQUIRE(write(four, "4", 1) == 1);
  const int five = fcntl64(fd, F_DUPFD_CLOEXEC, 70);
  REQUIRE(write(five, "5", 1) == 1);
  REQUIRE(dup2(fd, fd) == fd);
  /* In the place of a file of the volume now: something else. */
  int pair[2];
  REQUIRE(pipe(pair) == 0);
  REQUIRE(dup2(pair[1], 50) == 50);
  REQUIRE(write(50, "p", 1) == 1);
  REQUIRE(syscall(SYS_dup2, fd, 50) == 50);
  REQUIRE(write(50, "6", 1) == 1);
}

static void dup_errors(void) {
  FAILS(dup(-1), EBADF);
  FAILS(dup(99), EBADF);
  FAILS(dup2(99, 50), EBADF);
  FAILS(dup3(1, 1, 0), EINVAL);
  FAILS(fcntl(99, F_DUPFD, 0), EBADF);
  FAILS(fcntl(99, F_GETFL), EBADF);
  FAILS(fcntl(99, F_SETFL, O_APPEND), EBADF);
  FAILS(close(-1), EBADF);
  FAILS(close(99), EBADF);
}

static void own_descriptor_is_spared(void) {
  REQUIRE(is_open(OWN));
  FAILS(close(OWN), EBADF);
  FAILS(syscall(SYS_close, OWN), EBADF);
  FAILS(dup(OWN), EBADF);
  FAILS(fcntl(OWN, F_DUPFD, 0), EBADF);
  const int fd = subject_file("f");
  FAILS(dup2(fd, OWN), EBUSY);
  FAILS(dup2(OWN, 50), EBADF);
  REQUIRE(dup2(fd, OWN + 1) == OWN + 1);
  REQUIRE(close_range(3, ~0U, 0) == 0);
  REQUIRE(is_open(OWN));
  REQUIRE(!is_open(fd) && !is_open(OWN + 1));
  REQUIRE(close_range(OWN, OWN, 0) == 0 && is_open(OWN));
  REQUIRE(dup2(0, 50) == 50);
  errno = 0;
  closefrom(3);
  REQUIRE(errno == 0 && is_open(OWN) && !is_open(50));
  REQUIRE(syscall(SYS_close_range, 3L, 1000L, 0L) == 0 && is_open(OWN));
  FAILS(close_range(5, 4, 0), EINVAL);
  FAILS(close_range(3, 4, 1 << 20), EINVAL);
  const int again = subject_file("g");
  REQUIRE(write(again, "x", 1) == 1);
}

static void number_is_used_again(void) {
  const int fd = subject_file("f");
  REQUIRE(write(fd, "1", 1) == 1);
  REQUIRE(close_range(fd, fd, 0) == 0);
  int pair[2];
  REQUIRE(pipe(pair) == 0);
  REQUIRE(pair[0] == fd);
  REQUIRE(close(pair[0]) == 0);
  FILE* stream = fopen("g", "r+");
  REQUIRE(stream == NULL);
  stream = fopen("f", "r");
  REQUIRE(fileno(stream) == fd);
  REQUIRE(fclose(stream) == 0);
  REQUIRE(subject_file("h") == fd);
  REQUIRE(write(fd, "2", 1) == 1);
}

const struct subject_case close_cases[] = {{"dup_family", dup_family},
                                           {"dup_errors", dup_errors},
                                           {"own_descriptor_is_spared", own_descriptor_is_spared},
                                           {"number_is_used_again", number_is_used_again},
                                           {NULL, NULL}};
