#include "client/direct/process/attach.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "client/direct/window/layout.h"
#include "client/direct/window/system.h"

namespace salius::direct {
namespace {

constexpr time_t kPatienceSeconds = 10;
constexpr size_t kControlBytes = CMSG_SPACE(kAttachDescriptors * sizeof(int));

// Sends one message, with the descriptors if there are any. Returns 0 or an errno.
int SendReply(int connection, const AttachReply& reply, const int* descriptors) {
  iovec part{const_cast<AttachReply*>(&reply), sizeof(reply)};
  alignas(cmsghdr) char control[kControlBytes] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptors != nullptr) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(kAttachDescriptors * sizeof(int));
    std::memcpy(CMSG_DATA(head), descriptors, kAttachDescriptors * sizeof(int));
  }
  while (sendmsg(connection, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

// Puts the descriptors that came with `message` into `attached`. Closes all if they are not those
// that were expected.
bool TakeDescriptors(msghdr& message, Attached& attached) {
  size_t count = 0;
  bool good = (message.msg_flags & MSG_CTRUNC) == 0;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t given = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < given; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
      if (count < kAttachDescriptors) {
        attached.descriptors[count++] = fd;
      } else {
        RawClose(fd);
        good = false;
      }
    }
  }
  return good && count == kAttachDescriptors;
}

void CloseAll(Attached& attached) {
  for (int& fd : attached.descriptors) {
    if (fd >= 0) RawClose(fd);
    fd = -1;
  }
  if (attached.connection >= 0) RawClose(attached.connection);
  attached.connection = -1;
}

Attached Failed(Attached& attached, int error, const char* text) {
  CloseAll(attached);
  attached.error = error;
  std::strncpy(attached.text, text, sizeof(attached.text) - 1);
  return attached;
}

}  // namespace

int MoveHigh(int fd) {
  rlimit limit{};
  int first = 1000;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > 64) {
    // The limit of a service may be a million: a table of that size would cost memory.
    const rlim_t most = limit.rlim_cur < 4096 ? limit.rlim_cur : rlim_t{4096};
    first = static_cast<int>(most) - 32;
  }
  const int moved = RawFcntl(fd, F_DUPFD_CLOEXEC, first);
  if (moved < 0) {
    RawFcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
  }
  RawClose(fd);
  return moved;
}

int SocketAddress(const char* path, sockaddr_un* address, int* directory) {
  *address = {};
  address->sun_family = AF_UNIX;
  *directory = -1;
  const size_t length = std::strlen(path);
  if (length < sizeof(address->sun_path)) {
    std::memcpy(address->sun_path, path, length + 1);
    return 0;
  }
  const char* const name = std::strrchr(path, '/');
  char parent[PATH_MAX];
  if (name == nullptr || length >= sizeof(parent)) return ENAMETOOLONG;
  std::memcpy(parent, path, static_cast<size_t>(name - path));
  parent[name - path] = '\0';
  *directory = RawOpenDirectory(parent);
  if (*directory < 0) return errno;
  const int needed = std::snprintf(address->sun_path, sizeof(address->sun_path),
                                   "/proc/self/fd/%d%s", *directory, name);
  if (needed < static_cast<int>(sizeof(address->sun_path))) return 0;
  RawClose(*directory);
  *directory = -1;
  return ENAMETOOLONG;
}

Attached AttachTo(const char* path) {
  Attached attached;
  sockaddr_un address{};
  int directory = -1;
  if (const int error = SocketAddress(path, &address, &directory); error != 0) {
    return Failed(attached, error, "socket path");
  }
  attached.connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (attached.connection < 0) {
    const int error = errno;
    if (directory >= 0) RawClose(directory);
    return Failed(attached, error, "socket");
  }
  attached.connection = MoveHigh(attached.connection);
  const timeval patience{kPatienceSeconds, 0};
  setsockopt(attached.connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(attached.connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  int error = 0;
  do {
    const auto* const where = reinterpret_cast<const sockaddr*>(&address);
    // Straight to the kernel: these are no outputs (client/gate/call_page.h).
    error = static_cast<int>(
        -RawCall(SYS_connect, attached.connection, AsLong(where), sizeof(address)));
  } while (error == EINTR);
  if (directory >= 0) RawClose(directory);
  if (error != 0) return Failed(attached, error, "connect to the coordinator");
  AttachRequest request;
  request.window_version = kWindowVersion;
  request.pid = getpid();
  request.pid_namespace = OwnPidNamespace();
  const long sent = RawCall(SYS_sendto, attached.connection, AsLong(&request), sizeof(request),
                            MSG_NOSIGNAL, 0, 0);
  if (sent != sizeof(request)) {
    return Failed(attached, sent < 0 ? static_cast<int>(-sent) : EPROTO, "send to the coordinator");
  }
  AttachReply reply;
  iovec part{&reply, sizeof(reply)};
  alignas(cmsghdr) char control[kControlBytes] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got = 0;
  while ((got = recvmsg(attached.connection, &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno != EINTR) return Failed(attached, errno, "no answer of the coordinator");
  }
  const bool complete = TakeDescriptors(message, attached);
  if (got != sizeof(reply) || reply.magic != kAttachMagic || reply.version != kAttachVersion) {
    return Failed(attached, EPROTO, "the coordinator is of another version");
  }
  reply.text[sizeof(reply.text) - 1] = '\0';
  if (reply.error != 0) return Failed(attached, reply.error, reply.text);
  if (!complete) return Failed(attached, EMFILE, "descriptors of the coordinator");
  for (int& fd : attached.descriptors) fd = MoveHigh(fd);
  attached.window_bytes = reply.window_bytes;
  return attached;
}

uint32_t OwnPidNamespace() {
  struct stat status;
  const long error =
      RawCall(SYS_newfstatat, AT_FDCWD, AsLong("/proc/self/ns/pid"), AsLong(&status), 0);
  return error == 0 ? static_cast<uint32_t>(status.st_ino) : 0;
}

int ReadAttachRequest(int connection, AttachRequest* request) {
  ssize_t got = 0;
  while ((got = recv(connection, request, sizeof(*request), 0)) < 0) {
    if (errno != EINTR) return errno;
  }
  const bool good = got == sizeof(*request) && request->magic == kAttachMagic &&
                    request->version == kAttachVersion && request->window_version == kWindowVersion;
  return good ? 0 : EPROTO;
}

int AcceptAttach(int connection, uint64_t window_bytes, const int* descriptors) {
  AttachReply reply;
  reply.window_bytes = window_bytes;
  return SendReply(connection, reply, descriptors);
}

int RefuseAttach(int connection, int error, const char* text) {
  AttachReply reply;
  reply.error = error;
  std::strncpy(reply.text, text, sizeof(reply.text) - 1);
  return SendReply(connection, reply, nullptr);
}

}  // namespace salius::direct
