#include "client/cli/echo.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/limits.h"
#include "common/net.h"

namespace salius::cli {
namespace {

constexpr int kResendMs = 100;
constexpr int kMaxResends = 20;

// As large as the replicas' buffers: a burst of writers must not overflow the socket.
constexpr int kSocketBufferBytes = 4 << 20;

}  // namespace

absl::StatusOr<UniqueFd> BindUdp(const std::string& host, sockaddr_in* address) {
  UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  if (setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kSocketBufferBytes,
                 sizeof(kSocketBufferBytes)) != 0) {
    return ErrnoStatus(errno, "SO_RCVBUF");
  }
  *address = {};
  address->sin_family = AF_INET;
  if (inet_pton(AF_INET, host.c_str(), &address->sin_addr) != 1) {
    return absl::InvalidArgumentError("\"" + host + "\" is not an IPv4 address");
  }
  socklen_t length = sizeof(*address);
  auto* const raw = reinterpret_cast<sockaddr*>(address);
  if (bind(fd.get(), raw, length) != 0) return ErrnoStatus(errno, "bind " + host);
  if (getsockname(fd.get(), raw, &length) != 0) return ErrnoStatus(errno, "getsockname");
  return fd;
}

absl::StatusOr<std::vector<sockaddr_in>> ResolveEcho(absl::Span<const std::string> places) {
  std::vector<sockaddr_in> addresses;
  for (const std::string& place : places) {
    SALIUS_ASSIGN_OR_RETURN(const HostPort host_port, ParseHostPort(place, 0));
    SALIUS_ASSIGN_OR_RETURN(const SocketAddress address, Resolve(host_port));
    if (address.storage.ss_family != AF_INET) {
      return absl::InvalidArgumentError("\"" + place + "\" has no IPv4 address");
    }
    std::memcpy(&addresses.emplace_back(), &address.storage, sizeof(sockaddr_in));
  }
  return addresses;
}

absl::Status ServeEcho(int fd, absl::FunctionRef<void(absl::Span<const uint8_t>)> keep) {
  std::vector<uint8_t> buffer(kDatagramPayloadLoopback);
  for (;;) {
    sockaddr_in from{};
    socklen_t length = sizeof(from);
    auto* const raw = reinterpret_cast<sockaddr*>(&from);
    const ssize_t received = recvfrom(fd, buffer.data(), buffer.size(), 0, raw, &length);
    if (received < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "recvfrom");
    }
    keep(absl::MakeConstSpan(buffer).first(static_cast<size_t>(received)));
    // An answer that cannot be sent is a lost datagram: the sender asks again.
    if (sendto(fd, buffer.data(), kEchoAnswerBytes, 0, raw, length) < 0 && errno == EBADF) {
      return ErrnoStatus(errno, "sendto");
    }
  }
}

absl::StatusOr<EchoServers> EchoServers::Spawn(size_t count) {
  EchoServers servers;
  const pid_t parent = getpid();
  for (size_t i = 0; i < count; ++i) {
    sockaddr_in address{};
    SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, BindLoopback(&address));
    const pid_t child = fork();
    if (child < 0) return ErrnoStatus(errno, "fork");
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(EXIT_FAILURE);  // the parent died before prctl
      _exit(ServeEcho(fd.get()).ok() ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    servers.addresses_.push_back(address);
    servers.children_.push_back(child);
  }
  return servers;
}

EchoServers::EchoServers(EchoServers&& other) noexcept
    : addresses_(std::move(other.addresses_)), children_(std::exchange(other.children_, {})) {}

EchoServers::~EchoServers() {
  for (const pid_t child : children_) kill(child, SIGKILL);
  for (const pid_t child : children_) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

absl::StatusOr<QuorumPing> QuorumPing::Connect(absl::Span<const sockaddr_in> addresses,
                                               size_t acks) {
  if (acks == 0 || acks > addresses.size() || addresses.size() > kMaxReplicas) {
    return absl::InvalidArgumentError(
        "acks must be from 1 to the number of servers, and those at most kMaxReplicas");
  }
  QuorumPing ping;
  sockaddr_in own{};
  const bool near = addresses[0].sin_addr.s_addr == htonl(INADDR_LOOPBACK);
  SALIUS_ASSIGN_OR_RETURN(ping.socket_, BindUdp(near ? "127.0.0.1" : "0.0.0.0", &own));
  const timeval wait{.tv_sec = 0, .tv_usec = kResendMs * 1000};
  if (setsockopt(ping.socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) != 0) {
    return ErrnoStatus(errno, "SO_RCVTIMEO");
  }
  ping.addresses_.assign(addresses.begin(), addresses.end());
  ping.answered_.resize(addresses.size());
  ping.acks_ = acks;
  return ping;
}

absl::Status QuorumPing::SendToUnanswered(absl::Span<const uint8_t> payload) {
  std::array<Header, kMaxReplicas> headers{};
  std::array<std::array<iovec, 2>, kMaxReplicas> parts{};
  std::array<mmsghdr, kMaxReplicas> messages{};
  size_t count = 0;
  for (size_t i = 0; i < addresses_.size() && count < messages.size(); ++i) {
    if (answered_[i]) continue;
    headers[count] = {.number = number_, .server = i};
    parts[count][0] = {&headers[count], sizeof(Header)};
    parts[count][1] = {const_cast<uint8_t*>(payload.data()), payload.size()};
    messages[count].msg_hdr.msg_name = &addresses_[i];
    messages[count].msg_hdr.msg_namelen = sizeof(addresses_[i]);
    messages[count].msg_hdr.msg_iov = parts[count].data();
    messages[count].msg_hdr.msg_iovlen = 2;
    ++count;
  }
  size_t sent = 0;
  while (sent < count) {
    const int now = sendmmsg(socket_.get(), messages.data() + sent, count - sent, 0);
    if (now < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "sendmmsg");
    }
    sent += static_cast<size_t>(now);
  }
  return absl::OkStatus();
}

absl::Status QuorumPing::Start(absl::Span<const uint8_t> payload) {
  if (payload.size() > kMaxPingBytes) {
    return absl::InvalidArgumentError("the payload of a ping does not fit one datagram");
  }
  ++number_;
  std::fill(answered_.begin(), answered_.end(), false);
  payload_ = payload;
  return SendToUnanswered(payload);
}

absl::Status QuorumPing::Finish() {
  std::array<uint8_t, kEchoAnswerBytes> answer{};
  size_t answers = 0;
  for (int resends = 0; answers < acks_;) {
    const ssize_t received = recv(socket_.get(), answer.data(), answer.size(), 0);
    if (received < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return ErrnoStatus(errno, "recv");
      if (++resends > kMaxResends) {
        return absl::DeadlineExceededError("the echo servers do not answer");
      }
      SALIUS_RETURN_IF_ERROR(SendToUnanswered(payload_));
      continue;
    }
    Header header{};
    if (static_cast<size_t>(received) < sizeof(header)) continue;
    std::memcpy(&header, answer.data(), sizeof(header));
    if (header.number != number_ || header.server >= answered_.size()) continue;
    if (answered_[header.server]) continue;
    answered_[header.server] = true;
    ++answers;
  }
  return absl::OkStatus();
}

absl::Status QuorumPing::Exchange(absl::Span<const uint8_t> payload) {
  SALIUS_RETURN_IF_ERROR(Start(payload));
  return Finish();
}

absl::Status QuorumPing::ExchangeAll(absl::Span<const uint8_t> payload,
                                     const std::function<absl::Status()>& meanwhile) {
  SALIUS_RETURN_IF_ERROR(Start(payload.subspan(0, kMaxPingBytes)));
  SALIUS_RETURN_IF_ERROR(meanwhile());
  SALIUS_RETURN_IF_ERROR(Finish());
  for (size_t at = kMaxPingBytes; at < payload.size(); at += kMaxPingBytes) {
    SALIUS_RETURN_IF_ERROR(Exchange(payload.subspan(at, kMaxPingBytes)));
  }
  return absl::OkStatus();
}

}  // namespace salius::cli
