#include "client/direct/coordinator/attach_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "client/direct/process/attach.h"
#include "common/check.h"
#include "common/log.h"

namespace salius::direct {
namespace {

constexpr int kBacklog = 128;
// A process that connects sends its request at once.
constexpr timeval kRequestPatience{1, 0};

// Returns whether the process that sent this request is in this PID namespace. `pid`: its id here;
// 0 when it has none.
bool InThisPidNamespace(const AttachRequest& request, pid_t pid) {
  const uint32_t own = OwnPidNamespace();
  const bool known = own != 0 && request.pid_namespace != 0;
  return request.pid == pid && (!known || request.pid_namespace == own);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttachServer>> AttachServer::Start(const std::string& path,
                                                                  uint64_t window_bytes,
                                                                  const int* descriptors) {
  sockaddr_un address{};
  int directory = -1;
  if (const int error = SocketAddress(path.c_str(), &address, &directory); error != 0) {
    return ErrnoStatus(error, path);
  }
  const UniqueFd held(directory);
  UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return ErrnoStatus(errno, "socket");
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, path);
  // Its directory is closed to others, so the moment before chmod opens it to none.
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(listener.get(), kBacklog) != 0) {
    return ErrnoStatus(errno, path);
  }
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  return std::unique_ptr<AttachServer>(
      new AttachServer(path, std::move(listener), std::move(wake), window_bytes, descriptors));
}

AttachServer::AttachServer(std::string path, UniqueFd listener, UniqueFd wake,
                           uint64_t window_bytes, const int* descriptors)
    : path_(std::move(path)),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      window_bytes_(window_bytes),
      descriptors_(descriptors),
      thread_([this] { Loop(); }) {}

AttachServer::~AttachServer() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
}

void AttachServer::Wake() {
  const uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
}

void AttachServer::Release() {
  {
    absl::MutexLock lock(&mu_);
    held_ = false;
  }
  Wake();
}

void AttachServer::AwaitLast() {
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&ended_));
}

size_t AttachServer::connections() const {
  absl::MutexLock lock(&mu_);
  return connections_.size();
}

bool AttachServer::Ends() {
  ended_ = !held_ && connections_.empty();
  return ended_ || stopping_;
}

void AttachServer::Loop() {
  while (true) {
    std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    {
      absl::MutexLock lock(&mu_);
      for (const UniqueFd& connection : connections_) fds.push_back({connection.get(), POLLIN, 0});
    }
    if (::poll(fds.data(), fds.size(), -1) < 0) SALIUS_CHECK(errno == EINTR, "poll");
    uint64_t wakes = 0;
    if (fds[0].revents != 0) static_cast<void>(!::read(wake_.get(), &wakes, sizeof(wakes)));
    for (size_t i = fds.size(); i-- > 2;) {
      if (fds[i].revents == 0) continue;
      char byte = 0;
      const ssize_t got = ::recv(fds[i].fd, &byte, 1, MSG_DONTWAIT);
      if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) continue;
      absl::MutexLock lock(&mu_);
      auto& gone = connections_[i - 2];
      last_ = std::move(gone);
      connections_.erase(connections_.begin() + static_cast<ptrdiff_t>(i - 2));
    }
    if (fds[1].revents != 0) Accept();
    absl::MutexLock lock(&mu_);
    if (Ends()) break;
    last_.Reset();
  }
  ::unlink(path_.c_str());
  listener_.Reset();
}

void AttachServer::Accept() {
  UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection.valid()) return;
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
      (peer.uid != ::geteuid() && peer.uid != 0)) {
    RefuseAttach(connection.get(), EACCES, "the volume is used by another user");
    return;
  }
  ::setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &kRequestPatience,
               sizeof(kRequestPatience));
  AttachRequest request;
  int error = ReadAttachRequest(connection.get(), &request);
  if (error == EPROTO) {
    RefuseAttach(connection.get(), error, "salius-run and the library are of different versions");
  }
  if (error == 0 && !InThisPidNamespace(request, peer.pid)) {
    error = EPERM;
    RefuseAttach(connection.get(), error, kOtherNamespace);
  }
  if (error == 0) error = AcceptAttach(connection.get(), window_bytes_, descriptors_);
  if (error != 0) {
    SLOG_WARN("a process could not attach: {}", std::string(std::strerror(error)));
    return;
  }
  absl::MutexLock lock(&mu_);
  connections_.push_back(std::move(connection));
}

}  // namespace salius::direct
