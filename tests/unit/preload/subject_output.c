/* Pipes and sockets: their calls do what they do without the library. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/preload/subject.h"

static void require_text(int fd, const char* text) {
  char found[16] = {0};
  REQUIRE(read(fd, found, sizeof(found) - 1) == (ssize_t)strlen(text));
  REQUIRE(strcmp(found, text) == 0);
}

static void pipes(void) {
  int one[2], other[2];
  REQUIRE(pipe(one) == 0);
  REQUIRE(pipe2(other, O_CLOEXEC) == 0);
  REQUIRE((fcntl(other[0], F_GETFD) & FD_CLOEXEC) != 0);
  struct iovec part = {(void*)"abc", 3};
  REQUIRE(vmsplice(one[1], &part, 1, 0) == 3);
  REQUIRE(tee(one[0], other[1], 3, 0) == 3);
  require_text(one[0], "abc");
  require_text(other[0], "abc");
  FAILS(vmsplice(-1, &part, 1, 0), EBADF);
  FAILS(tee(-1, other[1], 3, 0), EBADF);
  FAILS(pipe2(one, -1), EINVAL);
}

static void sockets(void) {
  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
  REQUIRE(send(pair[0], "a", 1, 0) == 1);
  require_text(pair[1], "a");
  REQUIRE(sendto(pair[0], "bc", 2, 0, NULL, 0) == 2);
  require_text(pair[1], "bc");
  struct iovec part = {(void*)"def", 3};
  struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}},
                                {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}};
  REQUIRE(sendmsg(pair[0], &messages[0].msg_hdr, 0) == 3);
  require_text(pair[1], "def");
  REQUIRE(sendmmsg(pair[0], messages, 2, 0) == 2);
  require_text(pair[1], "def");
  require_text(pair[1], "def");
  REQUIRE(shutdown(pair[0], SHUT_WR) == 0);
  FAILS(shutdown(-1, SHUT_WR), EBADF);
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "no-such-socket"};
  FAILS(connect(pair[1], (struct sockaddr*)&address, sizeof(address)), ENOENT);
  FAILS(send(-1, "a", 1, 0), EBADF);
}

const struct subject_case output_cases[] = {
    {"output_pipes", pipes}, {"output_sockets", sockets}, {NULL, NULL}};
