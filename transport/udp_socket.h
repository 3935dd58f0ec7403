// Batched datagram I/O on one UDP socket (recvmmsg, sendmmsg), unicast and multicast. Datagrams of
// a batch to one destination, one after the other and equally long but for the last, go through the
// system's network as one and are cut by the card, or at the end (UDP_SEGMENT); a receiver that
// wants it gets them joined (UDP_GRO). On the wire and for the callers they are always datagrams.
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
  // The address of this host that it leaves from; its port does not matter. Null: as the socket is
  // bound, or by the route.
  const SocketAddress* from = nullptr;
};

struct InDatagram {
  absl::Span<const uint8_t> bytes;
  bool truncated = false;  // larger than the buffer; must be counted and dropped
  const SocketAddress* from = nullptr;
  // The address of this host that it was sent to; null when Options::local_address was not asked
  // for.
  const SocketAddress* at = nullptr;
};

// What Send can pass on as one message at most.
inline constexpr size_t kMaxSegmentedBytes = 65000;  // with its headers an IP packet's 65535
inline constexpr size_t kMaxSegments = 64;
// Parts that the kernel takes in one message (UIO_MAXIOV): of a datagram, or of a run together.
inline constexpr size_t kMaxParts = 1024;

// Buffers for so many messages (a datagram, or those that the kernel joined), and the datagrams
// that the last Receive put there. Made once: the system call's own structures are filled in
// beforehand.
class InBatch {
 public:
  InBatch(size_t messages, size_t buffer_bytes);
  InBatch(const InBatch&) = delete;
  InBatch& operator=(const InBatch&) = delete;

  size_t size() const { return in_.size(); }  // datagrams of the last Receive
  const InDatagram& operator[](size_t i) const { return in_[i]; }
  // It took as many messages as it can: there may be more. After a Receive that waits false says
  // nothing.
  bool full() const { return full_; }

 private:
  friend class UdpSocket;
  union Control {
    char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(in6_pktinfo))];
    cmsghdr align;
  };
  void Reset(size_t i);  // ready to receive again
  void Take(size_t i);   // the datagrams of a received message

  const size_t buffer_bytes_;
  std::vector<uint8_t> storage_;
  std::vector<InDatagram> in_;
  bool full_ = false;
  int lone_ = 0;  // so many receives that wait take one message: the last batch was no more
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

  // Takes over a datagram socket of any family that is bound already; it passes on every datagram
  // by itself.
  static UdpSocket Adopt(UniqueFd fd) { return UdpSocket(std::move(fd)); }

  // Joins an IPv4 or IPv6 multicast group (replicas), on the interface named `interface` ("eth0"),
  // or when that is empty on the one that routes to the group. Afterwards the socket receives only
  // groups it joined itself. INVALID_ARGUMENT when `group` is not multicast, NOT_FOUND for the
  // interface.
  absl::Status JoinGroup(const SocketAddress& group, std::string_view interface = {});
  // For a sender: leaves by the interface named `interface`, or when that is empty by the one of
  // the socket's local address (when bound to one); TTL 1, no loop back to this host unless `loop`.
  // INVALID_ARGUMENT when `group` is not multicast, NOT_FOUND for the interface.
  absl::Status PrepareMulticastSend(const SocketAddress& group, bool loop,
                                    std::string_view interface = {});

  int fd() const { return fd_.get(); }
  absl::StatusOr<SocketAddress> local() const;
  int receive_buffer_bytes() const;  // what the kernel really gave

  // Sends as many as it can without blocking, runs of them as one message (above); returns how many
  // of the first datagrams were handed to the kernel: fewer than batch.size() only when the
  // socket's buffer is full (not an error). A datagram that the kernel refuses by itself
  // (ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EPERM from a firewall, EMSGSIZE, ...) is skipped, is
  // among those returned, and is counted in send_errors(): a lost datagram is always possible.
  size_t Send(absl::Span<const OutDatagram> batch);
  // Receives what is there, up to as many messages as the batch has room for; returns how many
  // datagrams these were. `wait`: block for the first one, at most as long as SetReceiveTimeout
  // said, and take maybe one message only while there are more; otherwise return 0 when there is
  // none. EINTR is retried.
  absl::StatusOr<size_t> Receive(InBatch& batch, bool wait);
  // Bounds every waiting Receive, in microseconds, rounded up to the kernel's tick.
  absl::Status SetReceiveTimeout(int64_t micros);

  uint64_t send_errors() const;
  // Whether runs of datagrams go as one message now: not for a second after the kernel refused one.
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

// Largest datagram payload that the route to `to` carries unfragmented: 1472 for Ethernet, 8972 for
// jumbo, 65507 on loopback (20 fewer over IPv6). From a connected probe socket's IP_MTU.
absl::StatusOr<uint32_t> PathDatagramBytes(const SocketAddress& to);

// Name of the interface that has the address from which datagrams to `to` are sent. The system's
// error when there is no route; NOT_FOUND when no interface has that address, or only the loopback
// interface and `to` is another host.
absl::StatusOr<std::string> InterfaceTowards(const SocketAddress& to);

// The first address of the host (see Resolve in common/net.h).
inline absl::StatusOr<SocketAddress> ResolveAddress(const HostPort& host_port) {
  return Resolve(host_port);
}

// Completes a link-local IPv6 address with the interface that it is of: nothing can be bound to one
// without. Others stay as they are. NOT_FOUND for the interface.
absl::Status ScopeTo(const std::string& interface, SocketAddress* address);

// Name of the interface that has the address `local` ("lo" for 127.0.0.1). NOT_FOUND when none has.
absl::StatusOr<std::string> InterfaceOf(const SocketAddress& local);

}  // namespace salius
