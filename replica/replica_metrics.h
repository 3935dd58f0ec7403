// The replica's metrics (docs/replica.md lists them): copies the acceptor's own counts, which are
// plain numbers under its lock, into the process's metrics.
//
// Threads: Export() from one thread; the Count functions from any.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "common/metrics.h"
#include "replica/acceptor.h"

namespace salius {

// The values to show, read under the acceptor's lock.
struct ReplicaSnapshot {
  AcceptorCounters counters;
  uint64_t memory_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t granted_bytes = 0;
  size_t volumes = 0;
  size_t overdue = 0;
  size_t slots = 0;
  size_t promises = 0;
  size_t most_promises = 0;
};
ReplicaSnapshot TakeSnapshot(const Acceptor& acceptor, int64_t now_ns);

class ReplicaMetrics {
 public:
  ReplicaMetrics(Incarnation incarnation, uint64_t process_starts);

  void Export(const ReplicaSnapshot& snapshot);
  void CountAcks(uint64_t acks) { acks_.Increment(acks); }
  void CountReceiveError() { receive_errors_.Increment(); }
  void SetSendErrors(uint64_t errors);

 private:
  AcceptorCounters shown_;
  uint64_t shown_send_errors_ = 0;
  Counter& frames_;
  Counter& records_;
  Counter& bytes_;
  Counter& trims_;
  Counter& acks_;
  Counter& receive_errors_;
  Counter& send_errors_;
  std::vector<Counter*> drops_;
  Gauge& memory_;
  Gauge& used_;
  Gauge& free_;
  Gauge& granted_;
  Gauge& volumes_;
  Gauge& overdue_;
  Gauge& slots_;
  Gauge& promises_;
  Gauge& most_promises_;
};

}  // namespace salius
