#include "client/gate/client.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "client/direct/process/attach.h"
#include "client/direct/window/system.h"
#include "client/gate/messages.h"

namespace salius::gate {
namespace {

using direct::AsLong;
using direct::RawCall;
using direct::RawClose;

constexpr time_t kPatienceSeconds = 10;
// How often a sleeper looks whether the daemon has ended: nothing else wakes it then.
constexpr int64_t kLookNs = 50'000'000;

Joined Failed(Joined& joined, long error, const char* text) {
  Leave(joined);
  joined.error = static_cast<int>(error);
  std::strncpy(joined.text, text, sizeof(joined.text) - 1);
  return joined;
}

// Connects a new socket to `path`. Returns its number or -errno.
long Connect(const char* path) {
  sockaddr_un address{};
  int directory = -1;
  if (const int error = direct::SocketAddress(path, &address, &directory); error != 0) {
    return -error;
  }
  long fd = RawCall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    fd = direct::MoveHigh(static_cast<int>(fd));
    const timeval patience{kPatienceSeconds, 0};
    for (const int way : {SO_RCVTIMEO, SO_SNDTIMEO}) {
      RawCall(SYS_setsockopt, fd, SOL_SOCKET, way, AsLong(&patience), sizeof(patience));
    }
    long done = 0;
    do {
      done = RawCall(SYS_connect, fd, AsLong(&address), sizeof(address));
    } while (done == -EINTR);
    if (done < 0) {
      RawClose(static_cast<int>(fd));
      fd = done;
    }
  }
  if (directory >= 0) RawClose(directory);
  return fd;
}

// Sends one message. Returns 0 or an errno.
long Send(int connection, const void* message, size_t bytes) {
  long sent = 0;
  do {
    sent = RawCall(SYS_sendto, connection, AsLong(message), static_cast<long>(bytes), MSG_NOSIGNAL);
  } while (sent == -EINTR);
  return sent < 0 ? -sent : 0;
}

// Receives the daemon's answer, and the page's descriptor if one came (else -1). Returns the number
// of bytes or -errno.
long Receive(int connection, Welcome* welcome, int* descriptor) {
  iovec part{welcome, sizeof(*welcome)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  long got = 0;
  do {
    got = RawCall(SYS_recvmsg, connection, AsLong(&message), MSG_CMSG_CLOEXEC);
  } while (got == -EINTR);
  const cmsghdr* const head = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
    std::memcpy(descriptor, CMSG_DATA(head), sizeof(*descriptor));
  }
  return got;
}

// Returns the inode number of a descriptor; 0: it is not open.
uint64_t InodeOf(int fd) {
  struct stat status {};
  return RawCall(SYS_fstat, fd, AsLong(&status)) == 0 ? status.st_ino : 0;
}

// Returns whether the descriptor still is the connection: a program that closes numbers which it
// does not know, past the library, may have another one there.
bool IsOurs(const Joined& joined) {
  return joined.connection >= 0 && InodeOf(joined.connection) == joined.connection_inode;
}

bool HungUp(int connection) {
  pollfd look{connection, 0, 0};  // POLLHUP and POLLERR are always reported
  const timespec now{};
  return RawCall(SYS_ppoll, AsLong(&look), 1, AsLong(&now)) > 0;
}

}  // namespace

Joined Join(const char* path, uint32_t session) {
  Joined joined;
  const long fd = Connect(path);
  if (fd < 0) return Failed(joined, -fd, "connect to the gate socket of the mount");
  joined.connection = static_cast<int>(fd);
  joined.connection_inode = InodeOf(joined.connection);
  Hello hello;
  hello.session = session;
  if (const long error = Send(joined.connection, &hello, sizeof(hello)); error != 0) {
    return Failed(joined, error, "send to the daemon of the mount");
  }
  Welcome welcome;
  int memory = -1;
  const long got = Receive(joined.connection, &welcome, &memory);
  if (got < 0) return Failed(joined, -got, "no answer of the daemon of the mount");
  const bool known = got == sizeof(welcome) && welcome.magic == kHelloMagic &&
                     welcome.version == kGateVersion;
  if (!known || welcome.error != 0 || memory < 0) {
    if (memory >= 0) RawClose(memory);
    welcome.text[sizeof(welcome.text) - 1] = '\0';
    if (!known) return Failed(joined, EPROTO, "the daemon of the mount is of another version");
    if (welcome.error != 0) return Failed(joined, welcome.error, welcome.text);
    return Failed(joined, EMFILE, "descriptor of the gate page");
  }
  const long at = RawCall(SYS_mmap, 0, kPageBytes, PROT_READ, MAP_SHARED, memory, 0);
  joined.page_inode = InodeOf(memory);
  RawClose(memory);
  if (at < 0 && at > -static_cast<long>(kPageBytes)) return Failed(joined, -at, "map the gate page");
  joined.page = reinterpret_cast<const Page*>(at);
  if (joined.page->magic != kPageMagic || joined.page->version != kPageVersion) {
    return Failed(joined, EPROTO, "the gate page is of another version");
  }
  return joined;
}

void Leave(Joined& joined) {
  if (joined.page != nullptr) RawCall(SYS_munmap, AsLong(joined.page), kPageBytes);
  if (joined.connection >= 0) RawClose(joined.connection);
  joined.page = nullptr;
  joined.connection = -1;
}

bool IsRegistered(const Joined& joined) {
  return joined.page->failed.load(std::memory_order_acquire) == 0 && IsOurs(joined) &&
         !HungUp(joined.connection);
}

int EndEarly(const Joined& joined) {
  const Await end{kEndEarly};
  if (!IsOurs(joined)) return ENOTCONN;
  long done = 0;
  // EAGAIN: the daemon has not answered for a while. Syncs that return early meanwhile would leak.
  do {
    done = Send(joined.connection, &end, sizeof(end));
    if (!IsOurs(joined)) return ENOTCONN;
  } while (done == EAGAIN);
  if (done != 0) return EPIPE;
  Await answer;
  do {
    done = RawCall(SYS_recvfrom, joined.connection, AsLong(&answer), sizeof(answer));
    if (!IsOurs(joined)) return ENOTCONN;
  } while (done == -EINTR || done == -EAGAIN);
  return done == sizeof(answer) && answer.seq == kEndEarly ? 0 : EPIPE;
}

int AwaitOutput(const Joined& joined) {
  const Page& page = *joined.page;
  const uint64_t upto = page.AwaitedByOutput();
  if (upto == 0) return 0;
  const Await await{upto};
  if (!IsOurs(joined)) return ENOTCONN;
  // An error shows as the end of the connection below.
  static_cast<void>(Send(joined.connection, &await, sizeof(await)));
  while (true) {
    const uint32_t news = page.news.load(std::memory_order_acquire);
    if (page.durable.load(std::memory_order_acquire) >= upto) return 0;
    if (page.failed.load(std::memory_order_acquire) != 0) return EIO;
    if (!IsOurs(joined)) return ENOTCONN;
    if (HungUp(joined.connection)) {
      // A daemon that was unmounted has made everything durable first.
      return page.durable.load(std::memory_order_acquire) >= upto ? 0 : EIO;
    }
    const timespec look{0, kLookNs};
    RawCall(SYS_futex, AsLong(&page.news), FUTEX_WAIT, news, AsLong(&look));
  }
}

}  // namespace salius::gate
