#include "client/mount/gate_metrics.h"

#include <utility>

#include "common/metrics.h"

namespace salius {

std::vector<prometheus::MetricFamily> GateMetrics::Collect() const {
  const control::VolumeStatusResponse::GateUse use = source_();
  MetricSamples out;
  out.AddGauge("salius_mount_gated_processes", "Processes whose outputs wait.", use.processes());
  out.AddGauge("salius_mount_waiting_answers",
               "Answers to processes outside the gate that wait for durability.",
               use.waiting_answers());
  out.AddCounter("salius_mount_waited_answers_total",
                 "Answers to processes outside the gate that had to wait for durability.",
                 use.waited_answers());
  return std::move(out).Take();
}

}  // namespace salius
