// Datagrams in batches, behind an interface: UdpSocket (transport/udp_socket.h) is the plain one,
// SealedChannel (transport/sealed_channel.h) a layer that seals, LossyChannel
// (transport/lossy_channel.h) a layer for tests.
//
// One virtual call sends or receives a whole batch, so the interface costs nothing per datagram.
//
// Threads: Send and Receive may be called from different threads at once.
#pragma once

#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/net.h"

namespace salius {

struct OutDatagram {
  const SocketAddress* to = nullptr;
  absl::Span<const iovec> parts;  // gathered into one datagram
  // The address of this host that it leaves from; its port does not matter. Null: the address that
  // the channel is bound to, or that the route gives.
  const SocketAddress* from = nullptr;
  // The key to seal it with; 0: the sender's current one. For a sealed channel only.
  uint32_t key_id = 0;
  // A sealed channel does not seal it: its receiver has no key.
  bool plain = false;
};

struct InDatagram {
  absl::Span<const uint8_t> bytes;
  bool truncated = false;  // larger than the buffer; must be counted and dropped
  const SocketAddress* from = nullptr;
  // The address of this host that it was sent to. Null when UdpSocket::Options::local_address is
  // off.
  const SocketAddress* at = nullptr;
  // The key that it was sealed with, and the sender in its prefix; 0: it came unsealed.
  uint32_t key_id = 0;
  uint32_t sender = 0;
};

// The most that Send can pass on as one message: datagrams of one size to one destination.
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

  // For layers: keeps the datagrams of the last Receive for which `keep(datagram, bytes)` returns
  // true. It may change the datagram, and its bytes in place.
  template <typename Keep>
  void Filter(Keep keep) {
    size_t kept = 0;
    for (InDatagram& datagram : in_) {
      // The bytes are those of storage_.
      uint8_t* const bytes = const_cast<uint8_t*>(datagram.bytes.data());
      if (keep(datagram, absl::MakeSpan(bytes, datagram.bytes.size()))) in_[kept++] = datagram;
    }
    in_.resize(kept);
  }

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

class DatagramChannel {
 public:
  virtual ~DatagramChannel() = default;

  // Sends as many datagrams as it can without blocking. Returns how many of the first datagrams
  // were handed over. That is fewer than batch.size() only when there is no room for more now (not
  // an error). A datagram that cannot be sent is skipped, counts as handed over, and is counted in
  // send_errors(): a lost datagram is always possible.
  virtual size_t Send(absl::Span<const OutDatagram> batch) = 0;
  // Receives the datagrams that are there, up to as many messages as the batch has room for.
  // Returns how many datagrams these were.
  // wait: block for the first one, at most as long as SetReceiveTimeout said. Such a call may take
  //   one message while there are more.
  // Without `wait`, returns 0 when there is none.
  virtual absl::StatusOr<size_t> Receive(InBatch& batch, bool wait) = 0;
  // Bounds every waiting Receive, in microseconds, rounded up to the kernel's tick.
  virtual absl::Status SetReceiveTimeout(int64_t micros) = 0;

  // Returns the descriptor that poll(2) finds readable when Receive has something to do.
  virtual int fd() const = 0;
  virtual absl::StatusOr<SocketAddress> local() const = 0;
  virtual uint64_t send_errors() const = 0;
  // Makes the kernel drop the datagrams that `program` drops (classic BPF; it sees a datagram
  // from its UDP header on), before they are received; empty: none. Replaces the program before it at
  // once. UNIMPLEMENTED: the channel has no such program.
  virtual absl::Status SetFilter(absl::Span<const sock_filter> program) {
    static_cast<void>(program);
    return absl::UnimplementedError("the channel has no filters");
  }
  // Returns the datagrams that the kernel has dropped: by the program, or because the socket's
  // buffer was full. The number wraps around.
  virtual uint32_t dropped() const { return 0; }
  // Returns the bytes that the channel adds to each datagram.
  virtual size_t overhead() const { return 0; }

 protected:
  DatagramChannel() = default;
  DatagramChannel(const DatagramChannel&) = default;
  DatagramChannel& operator=(const DatagramChannel&) = default;
};

// Puts a layer around a channel, and owns it.
using ChannelLayer =
    std::function<std::unique_ptr<DatagramChannel>(std::unique_ptr<DatagramChannel>)>;

// Returns `channel` with `layer` around it; `channel` itself when `layer` is empty.
inline std::unique_ptr<DatagramChannel> WithLayer(const ChannelLayer& layer,
                                                  std::unique_ptr<DatagramChannel> channel) {
  return layer ? layer(std::move(channel)) : std::move(channel);
}

}  // namespace salius
