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

  // `peers`: one whose length is 0 gets nothing yet. `datagram_bytes`: largest payload of one
  // datagram. `group`: multicast address, or none.
  FrameSender(UdpSocket& socket, const std::vector<SocketAddress>& peers, uint32_t datagram_bytes,
              std::optional<SocketAddress> group);

  // From now on peer `index` is at `address`, and no datagram has more than `datagram_bytes`. Two
  // calls must not overlap.
  void SetPeer(size_t index, const SocketAddress& address, uint32_t datagram_bytes);

  // `everyone`: mask of all peers with an open session; a first transmission to all of them goes to
  // the group once.
  void Send(const Job& job, uint8_t everyone);

 private:
  UdpSocket& socket_;
  std::list<SocketAddress> known_;  // every address that a peer ever had: some Send may use it
  std::array<std::atomic<const SocketAddress*>, kMaxReplicas> peers_{};  // null: none yet
  std::atomic<uint32_t> datagram_bytes_;
  std::optional<SocketAddress> group_;
};

}  // namespace salius
