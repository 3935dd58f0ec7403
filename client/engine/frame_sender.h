// Packs records into datagrams and sends them: several small records share one, large ones are
// split (docs/wire-format.md). No copy of record bytes: the kernel gathers them.
//
// Threads: Send may be called from any thread, also while SetPeer is; scratch space is per thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "client/engine/pipeline.h"
#include "common/limits.h"
#include "proto/frame.h"
#include "transport/udp_socket.h"

namespace salius {

class FrameSender {
 public:
  // Records for some peers, or (no records) a probe.
  struct Job {
    uint8_t targets = 0;  // bit per peer
    std::vector<RecordRef> records;
    FrameHeader header;       // everything but type, count, payload_bytes
    bool first_time = false;  // may go to the multicast group
  };

  // Nobody is anywhere yet. `datagram_bytes`: largest payload of one datagram. `group`: multicast
  // address, or none.
  FrameSender(UdpSocket& socket, uint32_t datagram_bytes, std::optional<SocketAddress> group);

  // From now on peer `index` is at `address`, to which a datagram may have `datagram_bytes`; what
  // is sent to the group comes there too, or not. Calls of these two must not overlap.
  void SetPeer(size_t index, const SocketAddress& address, uint32_t datagram_bytes, bool in_group);
  // It is nowhere, and gets nothing.
  void ClearPeer(size_t index);

  // `everyone`: mask of all peers with an open session; a first transmission to all of them goes to
  // the group once.
  void Send(const Job& job, uint8_t everyone);

 private:
  UdpSocket& socket_;
  std::list<SocketAddress> known_;  // every address that a peer ever had: some Send may use it
  std::array<std::atomic<const SocketAddress*>, kMaxReplicas> peers_{};  // null: none yet
  std::array<uint32_t, kMaxReplicas> fits_;                              // each peer's way
  const uint32_t most_;
  std::atomic<uint32_t> datagram_bytes_;  // the smallest of these
  std::atomic<uint8_t> in_group_ = 0;
  const std::optional<SocketAddress> group_;
};

}  // namespace salius
