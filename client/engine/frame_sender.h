// Packs records into datagrams and sends them: several small records share one, large ones are
// split (docs/wire-format.md). No copy of record bytes: the kernel gathers them.
//
// Threads: Send may be called from any thread; scratch space is per thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "client/engine/pipeline.h"
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

  // `datagram_bytes`: largest payload of one datagram. `group`: multicast address, or none.
  FrameSender(UdpSocket& socket, std::vector<SocketAddress> peers, uint32_t datagram_bytes,
              std::optional<SocketAddress> group);

  // `everyone`: mask of all peers with an open session; a first transmission to all of them goes to
  // the group once.
  void Send(const Job& job, uint8_t everyone);

 private:
  UdpSocket& socket_;
  std::vector<SocketAddress> peers_;
  uint32_t datagram_bytes_;
  // Of re-sends: somewhere on the way there may be less room than on the first cable, without a
  // word.
  uint32_t again_bytes_;
  std::optional<SocketAddress> group_;
};

}  // namespace salius
