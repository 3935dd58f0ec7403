// Sends records to replicas: chooses the size of datagrams and the way, has them packed
// (transport/packer.h), and copies no record bytes: the kernel gathers them.
//
// Threads: Send may be called from any thread, also while SetPeer is; scratch space is per thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "client/session/send_job.h"
#include "common/limits.h"
#include "proto/frame.h"
#include "transport/datagram_channel.h"

namespace salius {

class FrameSender {
 public:
  using Job = SendJob;

  // Makes a sender that has no peer's address yet. `datagram_bytes`: largest payload of any
  // datagram. `group`: multicast address, or none.
  FrameSender(DatagramChannel& channel, uint32_t datagram_bytes,
              std::optional<SocketAddress> group);

  // Sets the address of peer `index`. Calls of SetPeer and ClearPeer must not overlap.
  void SetPeer(size_t index, const SocketAddress& address);
  // Takes the address away: the peer gets nothing.
  void ClearPeer(size_t index);
  // Sets whether the peer's datagrams are plain on a sealed channel. Then none goes by the group,
  // where other peers take sealed ones only.
  void SetPlain(size_t index, bool plain);

  // Returns the address of peer `index`; null: it has none. It stays valid.
  const SocketAddress* peer(size_t index) const {
    return peers_[index].load(std::memory_order_acquire);
  }

  void Send(const Job& job);

 private:
  size_t DatagramBytes(const Job& job, uint8_t targets) const;
  // Whether all of `targets` take compact frames of the job.
  static bool Compact(const Job& job, uint8_t targets) {
    return (job.compact & targets) == targets;
  }
  // Sends to `targets` in the same datagrams: by the group, or to each.
  void SendTo(const Job& job, uint8_t targets, bool by_group);

  DatagramChannel& channel_;
  const size_t overhead_;           // of the channel, in each datagram
  std::list<SocketAddress> known_;  // every address that a peer ever had: a Send may use it
  std::array<std::atomic<const SocketAddress*>, kMaxReplicas> peers_{};  // null: none yet
  std::atomic<uint8_t> plain_{0};  // the peers of SetPlain
  const uint32_t most_;
  const std::optional<SocketAddress> group_;
};

}  // namespace salius
