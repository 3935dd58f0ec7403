// The replica's metrics (docs/replica.md lists them), read from the acceptor at each scrape.
//
// Threads: all functions from any.
#pragma once

#include <prometheus/collectable.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "replica/shared_acceptor.h"
#include "transport/key_ring.h"

namespace salius {

class ReplicaMetrics : public prometheus::Collectable {
 public:
  // `acceptor`, `clock` and `ring` must outlive it. `sealed`: datagrams are sealed, with the keys of
  // `ring`.
  ReplicaMetrics(SharedAcceptor& acceptor, Clock& clock, Incarnation incarnation,
                 uint64_t process_starts, bool sealed, const KeyRing& ring);

  void CountAcks(uint64_t acks) { acks_.fetch_add(acks, std::memory_order_relaxed); }
  void CountReceiveError() { receive_errors_.fetch_add(1, std::memory_order_relaxed); }
  void SetSendErrors(uint64_t errors) { send_errors_.store(errors, std::memory_order_relaxed); }

  // Takes the acceptor's lock for the time of a few dozen reads.
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  SharedAcceptor& acceptor_;
  Clock& clock_;
  const Incarnation incarnation_;
  const uint64_t process_starts_;
  const bool sealed_;
  const KeyRing& ring_;
  std::atomic<uint64_t> acks_{0};
  std::atomic<uint64_t> receive_errors_{0};
  std::atomic<uint64_t> send_errors_{0};
};

}  // namespace salius
