#include "client/gate/server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "client/gate/messages.h"
#include "common/check.h"
#include "common/log.h"
#include "common/strings.h"

namespace salius::gate {
namespace {

constexpr int kBacklog = 128;
constexpr mode_t kForAll = 0666;

// Answers a Hello; with the descriptor if there is no error. Returns whether it was sent.
bool Answer(int connection, int error, std::string_view text, int descriptor) {
  Welcome welcome;
  welcome.error = error;
  text.copy(welcome.text, sizeof(welcome.text) - 1);
  iovec part{&welcome, sizeof(welcome)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (error == 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &descriptor, sizeof(descriptor));
  }
  return ::sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(welcome);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const std::string& path, Memory& memory,
                                                      Insiders& insiders, Notify notify) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ErrnoStatus(ENAMETOOLONG, path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return ErrnoStatus(errno, "socket");
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, path);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::chmod(path.c_str(), kForAll) != 0 || ::listen(listener.get(), kBacklog) != 0) {
    return ErrnoStatus(errno, path);
  }
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  return std::unique_ptr<Server>(new Server(path, std::move(listener), std::move(wake), memory,
                                            insiders, std::move(notify)));
}

Server::Server(std::string path, UniqueFd listener, UniqueFd wake, Memory& memory,
               Insiders& insiders, Notify notify)
    : path_(std::move(path)),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      memory_(memory),
      insiders_(insiders),
      notify_(std::move(notify)),
      thread_([this] { Loop(); }) {}

Server::~Server() {
  const uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
  thread_.join();
  ::unlink(path_.c_str());
  for (const Connection& connection : connections_) insiders_.Remove(connection.fd.get());
}

void Server::Loop() {
  while (true) {
    std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Connection& connection : connections_) {
      fds.push_back({connection.fd.get(), POLLIN, 0});
    }
    if (::poll(fds.data(), fds.size(), -1) < 0) SALIUS_CHECK(errno == EINTR, "poll");
    if (fds[0].revents != 0) return;
    for (size_t i = fds.size(); i-- > 2;) {
      if (fds[i].revents == 0) continue;
      Connection& connection = connections_[i - 2];
      if (Take(connection)) continue;
      insiders_.Remove(connection.fd.get());
      connections_.erase(connections_.begin() + static_cast<ptrdiff_t>(i - 2));
    }
    if (fds[1].revents != 0) Accept();
  }
}

void Server::Accept() {
  UniqueFd connection(
      ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.valid()) connections_.push_back({std::move(connection), false});
}

bool Server::Take(Connection& connection) {
  if (!connection.registered) return Register(connection);
  Await await;
  const ssize_t got = ::recv(connection.fd.get(), &await, sizeof(await), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == sizeof(await) && await.seq == kEndEarly) {
    insiders_.EndSession(connection.fd.get());
    return ::send(connection.fd.get(), &await, sizeof(await), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           sizeof(await);
  }
  // A number that was never issued could not be waited for.
  if (got != sizeof(await) || await.seq > memory_.page().issued.load()) return false;
  AwaitFor(await.seq);
  return true;
}

bool Server::Register(Connection& connection) {
  Hello hello;
  const int fd = connection.fd.get();
  const ssize_t got = ::recv(fd, &hello, sizeof(hello), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got != sizeof(hello) || hello.magic != kHelloMagic || hello.version != kGateVersion) {
    static_cast<void>(Answer(fd, EPROTO, "the library is of another version than the daemon", -1));
    return false;
  }
  const absl::StatusOr<pid_t> process = insiders_.Add(fd, hello.session);
  if (!process.ok()) {
    SLOG_WARN("a process could not register at the gate: {}", process.status().ToString());
    static_cast<void>(Answer(fd, EPERM, Sv(process.status().message()), -1));
    return false;
  }
  connection.registered = true;
  return Answer(fd, 0, "", memory_.fd());
}

void Server::AwaitFor(Seq seq) {
  notify_(seq, [&memory = memory_](const absl::Status&) { memory.Wake(); });
}

}  // namespace salius::gate
