// Outputs without a file of the volume: sockets and pipes (gating.h). Pipes and socket pairs that
// this process makes are inside.
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

#include "client/preload/export.h"
#include "client/preload/gating.h"
#include "client/preload/library.h"
#include "client/preload/raw_call.h"
#include "client/preload/real_calls.h"

namespace salius::preload {
namespace {

#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

bool PassesDescriptors(const msghdr& message) {
  if (message.msg_control == nullptr) return false;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(const_cast<msghdr*>(&message), head)) {
    if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) return true;
  }
  return false;
}

// Takes note of what a message does beside its bytes. Returns whether the supervisor must see it.
bool Notice(int fd, const msghdr* message, int flags) {
  if (!gating.on()) return false;
  const int before = errno;
  const bool leave = (flags & MSG_ZEROCOPY) != 0 && gating.Lends(fd);
  if (message != nullptr && PassesDescriptors(*message)) gating.Passes(fd);
  errno = before;
  return leave;
}

int MadePair(int result, const int* fds) {
  if (result == 0) gating.Made(fds, 2);
  return result;
}

}  // namespace
}  // namespace salius::preload

using salius::preload::gating;
using salius::preload::MadePair;
using salius::preload::Notice;
using salius::preload::Output;
using salius::preload::real_calls;

SALIUS_INTERPOSE(int, pipe, int* fds) { return MadePair(real_calls.pipe(fds), fds); }
SALIUS_INTERPOSE(int, pipe2, int* fds, int flags) {
  return MadePair(real_calls.pipe2(fds, flags), fds);
}
SALIUS_INTERPOSE(int, socketpair, int domain, int type, int protocol, int* fds) {
  return MadePair(real_calls.socketpair(domain, type, protocol, fds), fds);
}

SALIUS_INTERPOSE(ssize_t, send, int fd, const void* data, size_t size, int flags) {
  if (Notice(fd, nullptr, flags)) return real_calls.send(fd, data, size, flags);
  return Output(
      fd, [&] { return real_calls.send(fd, data, size, flags); }, SYS_sendto, fd, data, size, flags,
      nullptr, 0);
}
SALIUS_INTERPOSE(ssize_t, sendto, int fd, const void* data, size_t size, int flags,
                 const sockaddr* to, socklen_t length) {
  if (Notice(fd, nullptr, flags)) return real_calls.sendto(fd, data, size, flags, to, length);
  return Output(
      fd, [&] { return real_calls.sendto(fd, data, size, flags, to, length); }, SYS_sendto, fd, data,
      size, flags, to, length);
}
SALIUS_INTERPOSE(ssize_t, sendmsg, int fd, const msghdr* message, int flags) {
  if (Notice(fd, message, flags)) return real_calls.sendmsg(fd, message, flags);
  return Output(
      fd, [&] { return real_calls.sendmsg(fd, message, flags); }, SYS_sendmsg, fd, message, flags);
}
SALIUS_INTERPOSE(int, sendmmsg, int fd, mmsghdr* messages, unsigned count, int flags) {
  bool leave = false;
  for (unsigned i = 0; gating.on() && i < count; ++i) {
    leave |= Notice(fd, &messages[i].msg_hdr, flags);
  }
  if (leave) return real_calls.sendmmsg(fd, messages, count, flags);
  return Output(
      fd, [&] { return real_calls.sendmmsg(fd, messages, count, flags); }, SYS_sendmmsg, fd,
      messages, count, flags);
}
SALIUS_INTERPOSE(int, connect, int fd, const sockaddr* to, socklen_t length) {
  return Output(
      fd, [&] { return real_calls.connect(fd, to, length); }, SYS_connect, fd, to, length);
}
SALIUS_INTERPOSE(int, shutdown, int fd, int how) {
  return Output(fd, [&] { return real_calls.shutdown(fd, how); }, SYS_shutdown, fd, how);
}

SALIUS_INTERPOSE(ssize_t, tee, int from, int to, size_t count, unsigned flags) {
  return Output(
      to, [&] { return real_calls.tee(from, to, count, flags); }, SYS_tee, from, to, count, flags);
}
SALIUS_INTERPOSE(ssize_t, vmsplice, int fd, const iovec* parts, size_t count, unsigned flags) {
  if (gating.Lends(fd)) return real_calls.vmsplice(fd, parts, count, flags);
  return Output(
      fd, [&] { return real_calls.vmsplice(fd, parts, count, flags); }, SYS_vmsplice, fd, parts,
      count, flags);
}
