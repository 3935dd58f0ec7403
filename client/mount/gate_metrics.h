// The gate of a mount with commit=external as Prometheus metrics (option metrics=host:port).
//
// Threads: any.
#pragma once

#include <prometheus/collectable.h>

#include <functional>
#include <utility>
#include <vector>

#include "proto/control.pb.h"

namespace salius {

class GateMetrics : public prometheus::Collectable {
 public:
  using Source = std::function<control::VolumeStatusResponse::GateUse()>;

  // `source` is asked at each scrape.
  explicit GateMetrics(Source source) : source_(std::move(source)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Source source_;
};

}  // namespace salius
