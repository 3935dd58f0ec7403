// The watermarks and the mode of the volume as Prometheus metrics, read from the stream's status at
// each scrape (option metrics=host:port).
//
// Threads: any.
#pragma once

#include <prometheus/collectable.h>

#include <cstdint>
#include <vector>

#include "client/session/record_stream.h"

namespace salius {

class VolumeMetrics : public prometheus::Collectable {
 public:
  // `stream` must outlive it; `acks` (f) is a metric too.
  VolumeMetrics(const RecordStream& stream, uint32_t acks) : stream_(stream), acks_(acks) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const RecordStream& stream_;
  const uint32_t acks_;
};

}  // namespace salius
