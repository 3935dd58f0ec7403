// The watermarks, the mode and the unapplied names of the volume as Prometheus metrics, read from
// the volume at each scrape (option metrics=host:port).
//
// Threads: any.
#pragma once

#include <prometheus/collectable.h>

#include <cstdint>
#include <vector>

#include "client/volume/volume.h"

namespace salius {

class VolumeMetrics : public prometheus::Collectable {
 public:
  // `volume` must outlive it; `acks` (f) is a metric too.
  VolumeMetrics(Volume& volume, uint32_t acks) : volume_(volume), acks_(acks) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  Volume& volume_;
  const uint32_t acks_;
};

}  // namespace salius
