// Batched datagram I/O on one UDP socket (recvmmsg, sendmmsg), unicast and multicast.
//
// Threads: Send and Receive may be called from different threads at once; the socket itself is the only
// shared state.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file.h"
#include "common/net.h"

namespace salius {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  std::string ToString() const;
  bool operator==(const SocketAddress& other) const;
};

struct OutDatagram {
  const SocketAddress* to = nullptr;
  absl::Span<const iovec> parts;  // gathered into one datagram
};

struct InDatagram {
  absl::Span<uint8_t> buffer;  // in: where to receive
  size_t bytes = 0;            // out
  bool truncated = false;      // out: larger than the buffer; must be counted and dropped
  SocketAddress from;          // out
};

class UdpSocket {
 public:
  struct Options {
    int receive_buffer_bytes = 8 << 20;  // SO_RCVBUFFORCE first, then SO_RCVBUF
    int send_buffer_bytes = 8 << 20;
    bool reuse_port = false;
  };
  // Binds to `local` (port 0: any). Errors: ALREADY_EXISTS when the port is in use (names the port),
  // the system's own otherwise.
  static absl::StatusOr<UdpSocket> Bind(const SocketAddress& local, const Options& options);

  // Joins an IPv4 or IPv6 multicast group on the interface that routes to it (replicas).
  absl::Status JoinGroup(const SocketAddress& group);
  // For a sender: interface by local address, TTL 1, no loop back unless `loop`.
  absl::Status PrepareMulticastSend(const SocketAddress& group, bool loop);

  int fd() const { return fd_.get(); }
  absl::StatusOr<SocketAddress> local() const;
  int receive_buffer_bytes() const;  // what the kernel really gave

  // Sends as many as it can without blocking; returns how many were handed to the kernel. A full socket
  // buffer ends the batch early (not an error); per-destination errors (ECONNREFUSED, EHOSTUNREACH,
  // ENETUNREACH, EPERM from a firewall) skip that datagram and are counted in send_errors(): a lost
  // datagram is always possible.
  size_t Send(absl::Span<const OutDatagram> batch);
  // Receives what is there, up to batch.size(). `wait`: block for the first one (interruptible only by
  // data; use poll for time-outs); otherwise return 0 when there is none. EINTR is retried.
  absl::StatusOr<size_t> Receive(absl::Span<InDatagram> batch, bool wait);

  uint64_t send_errors() const;

  UdpSocket(UdpSocket&&) noexcept = default;
  UdpSocket& operator=(UdpSocket&&) noexcept = default;

 private:
  explicit UdpSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  uint64_t send_errors_ = 0;  // accessed with __atomic builtins
};

// Largest datagram payload that the route to `to` carries unfragmented: 1472 for Ethernet, 8972 for
// jumbo, 65507 on loopback. From a connected probe socket's IP_MTU.
absl::StatusOr<uint32_t> PathDatagramBytes(const SocketAddress& to);

absl::StatusOr<SocketAddress> ResolveAddress(const HostPort& host_port);

}  // namespace salius
