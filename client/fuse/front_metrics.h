// The metrics of the FUSE front. Counting is one relaxed atomic addition without a lock.
//
// Threads: all functions from any.
#pragma once

#include <prometheus/collectable.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "common/metrics.h"

namespace salius {

class FrontMetrics : public prometheus::Collectable {
 public:
  static void Count(std::atomic<uint64_t>& counter, uint64_t by = 1) {
    counter.fetch_add(by, std::memory_order_relaxed);
  }
  std::vector<prometheus::MetricFamily> Collect() const override;

  std::atomic<uint64_t> read_bytes{0};
  std::atomic<uint64_t> written_bytes{0};
  std::atomic<uint64_t> sync_writes{0};
  std::atomic<uint64_t> errors{0};
  LatencyHistogram sync_write_seconds;
  LatencyHistogram fsync_seconds;
};

}  // namespace salius
