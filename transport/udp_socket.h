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

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file.h"
#include "common/net.h"

namespace salius {

struct OutDatagram {
  const SocketAddress* to = nullptr;
  absl::Span<const iovec> parts;  // gathered into one datagram
  // The address of this host that it leaves from; its port does not matter. Null: the address that
  // the socket is bound to, or that the route gives.
  const SocketAddress* from = nullptr;
};

struct InDatagram {
  absl::Span<const uint8_t> bytes;
  bool truncated = false;  // larger than the buffer; must be counted and dropped
  const SocketAddress* from = nullptr;
  // The address of this host that it was sent to. Null when Options::local_address is off.
  const SocketAddress* at = nullptr;
};

// The most that Send can pass on as one message.
inline constexpr size_t kMaxSegmentedBytes = 65000;  // with its headers an IP packet's 65535
inline constexpr size_t kMaxSegments = 64;
// Parts that the kernel takes in one message (UIO_MAXIOV), of one datagram or of a whole run.
inline constexpr size_t kMaxParts = 1024;

// Buffers for `messages` messages (a datagram, or datagrams that the kernel joined), and the
// datagrams that the last Receive put there. Made once: the system call's own structures are filled
// in beforehand.
class InBatch {
 public:
  InBatch(size_t messages, size_t buffer_bytes);
  InBatch(const InBatch&) = delete;
  InBatch& operator=(const InBatch&) = delete;

  size_t size() const { return in_.size(); }  // datagrams of the last Receive
  const InDatagram& operator[](size_t i) const { return in_[i]; }
  // Whether Receive took as many messages as it can, so that there may be more. After a Receive
  // that waits, false says nothing.
  bool full() const { return full_; }

 private:
  friend class UdpSocket;
  union Control {
    char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(in6_pktinfo))];
    cmsghdr align;
  };
  void Reset(size_t i);  // prepares message i to receive again
  void Take(size_t i);   // appends the datagrams of message i, which was received

  const size_t buffer_bytes_;
  std::vector<uint8_t> storage_;
  std::vector<InDatagram> in_;
  bool full_ = false;
  // Number of waiting receives that still take one message each, because the last batch had one.
  int lone_ = 0;
  std::vector<SocketAddress> from_, at_;
  std::vector<iovec> parts_;
  std::vector<Control> controls_;
  std::vector<mmsghdr> messages_;
};

class UdpSocket {
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

  int fd() const { return fd_.get(); }
  absl::StatusOr<SocketAddress> local() const;
  int receive_buffer_bytes() const;  // the size that the kernel really gave

  // Sends as many datagrams as it can without blocking, a run as one message (see above). Returns
  // how many of the first datagrams were handed to the kernel. That is fewer than batch.size() only
  // when the socket's buffer is full (not an error). The kernel may refuse one datagram:
  // ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EPERM from a firewall, EMSGSIZE, ... It is skipped,
  // counts as handed over, and is counted in send_errors(): a lost datagram is always possible.
  size_t Send(absl::Span<const OutDatagram> batch);
  // Receives the datagrams that are there, up to as many messages as the batch has room for.
  // Returns how many datagrams these were.
  // wait: block for the first one, at most as long as SetReceiveTimeout said. Such a call may take
  //   one message while there are more.
  // Without `wait`, returns 0 when there is none. EINTR is retried.
  absl::StatusOr<size_t> Receive(InBatch& batch, bool wait);
  // Bounds every waiting Receive, in microseconds, rounded up to the kernel's tick.
  absl::Status SetReceiveTimeout(int64_t micros);

  uint64_t send_errors() const;
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
