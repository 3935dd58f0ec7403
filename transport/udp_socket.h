// Batched datagram I/O on one UDP socket (recvmmsg, sendmmsg), unicast and multicast.
//
// A run is a sequence of datagrams in a batch to one destination, equally long but for the last,
// which may be shorter. A run goes through the system's network as one message (UDP_SEGMENT), which
// the card or the last layer cuts. A receiver that asks for it gets datagrams joined (UDP_GRO). On
// the wire and for the callers they are always datagrams.
//
// Threads: Send and Receive may be called from different threads at once; the socket itself is the
// only shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file.h"
#include "common/net.h"
#include "transport/datagram_channel.h"

namespace salius {

class UdpSocket final : public DatagramChannel {
 public:
  struct Options {
    int receive_buffer_bytes = 8 << 20;  // SO_RCVBUFFORCE first, then SO_RCVBUF
    int send_buffer_bytes = 8 << 20;
    bool reuse_port = false;
    bool both_families = false;  // an IPv6 socket that carries IPv4 too (MapToIpv6)
    bool local_address = false;  // say which of this host's addresses each datagram was sent to
    bool coalesce = false;  // datagrams may arrive joined: batches need buffers of 64 KiB
  };
  // Binds to `local` (port 0: any). Errors: ALREADY_EXISTS when the port is in use (names the
  // port), the system's own otherwise.
  static absl::StatusOr<UdpSocket> Bind(const SocketAddress& local, const Options& options);

  // Takes over a datagram socket of any family that is bound already. It sends every datagram as a
  // message of its own.
  static UdpSocket Adopt(UniqueFd fd) { return UdpSocket(std::move(fd)); }

  // Joins an IPv4 or IPv6 multicast group (replicas), on the interface named `interface` ("eth0").
  // When that is empty, on the interface that routes to the group. Afterwards the socket receives
  // only groups it joined itself. INVALID_ARGUMENT when `group` is not multicast, NOT_FOUND for the
  // interface.
  absl::Status JoinGroup(const SocketAddress& group, std::string_view interface = {});
  // Prepares a sender: datagrams leave by the interface named `interface`. When that is empty, by
  // the interface of the socket's local address (when bound to one). TTL is 1, and nothing loops
  // back to this host unless `loop`.
  // INVALID_ARGUMENT when `group` is not multicast, NOT_FOUND for the interface.
  absl::Status PrepareMulticastSend(const SocketAddress& group, bool loop,
                                    std::string_view interface = {});

  int receive_buffer_bytes() const;  // the size that the kernel really gave

  // Sends a run as one message (see above). Full means that the socket's buffer is full. The kernel
  // may refuse one datagram: ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EPERM from a firewall,
  // EMSGSIZE, ...
  size_t Send(absl::Span<const OutDatagram> batch) override;
  // Retries EINTR.
  absl::StatusOr<size_t> Receive(InBatch& batch, bool wait) override;
  absl::Status SetReceiveTimeout(int64_t micros) override;
  int fd() const override { return fd_.get(); }
  absl::StatusOr<SocketAddress> local() const override;
  uint64_t send_errors() const override;
  // While there is a program no datagrams arrive joined: it judges each one. UNIMPLEMENTED for a
  // socket that Adopt took.
  absl::Status SetFilter(absl::Span<const sock_filter> program) override;
  uint32_t dropped() const override;
  // Whether a run goes as one message now: not for a second after the kernel refused one.
  bool segments() const;

  // Moving is for set-up only: no other thread may use either socket meanwhile.
  UdpSocket(UdpSocket&& other) noexcept = default;
  UdpSocket& operator=(UdpSocket&& other) noexcept = default;

 private:
  explicit UdpSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  // Accessed with __atomic builtins.
  uint64_t send_errors_ = 0;
  int64_t segments_from_ns_ = -1;  // 0: at all times; negative: never
  bool bound_here_ = false;
  bool coalesce_ = false;  // as of Options
};

// Returns the largest datagram payload that the route to `to` carries unfragmented: 1472 for
// Ethernet, 8972 for jumbo, 65507 on loopback (20 fewer over IPv6). It comes from the IP_MTU of a
// connected probe socket.
absl::StatusOr<uint32_t> PathDatagramBytes(const SocketAddress& to);

// Returns the name of the interface that has the address from which datagrams to `to` are sent.
// Returns the system's error when there is no route. NOT_FOUND when no interface has that address,
// or only the loopback interface has it and `to` is another host.
absl::StatusOr<std::string> InterfaceTowards(const SocketAddress& to);

// Returns the first address of the host (see Resolve in common/net.h).
inline absl::StatusOr<SocketAddress> ResolveAddress(const HostPort& host_port) {
  return Resolve(host_port);
}

// Completes a link-local IPv6 address with its interface: nothing can be bound to one without.
// Other addresses stay as they are. NOT_FOUND for the interface.
absl::Status ScopeTo(const std::string& interface, SocketAddress* address);

// Returns the name of the interface that has the address `local` ("lo" for 127.0.0.1). NOT_FOUND
// when none has it.
absl::StatusOr<std::string> InterfaceOf(const SocketAddress& local);

}  // namespace salius
