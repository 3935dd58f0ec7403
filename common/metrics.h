// Metrics of this process, served in Prometheus' text format with prometheus-cpp.
//
// There are two ways to show a number:
//
// - A counter or histogram of the process's registry (GetCounter, GetLatencyHistogram): for events off the
//   write path. It is made once, kept by reference and lives for ever. The same name with the same
//   labels is the same metric.
// - A prometheus::Collectable, which computes its samples at each scrape (MetricSamples) from what
//   its component has: a status, or plain atomics. A number of the write path is such an atomic,
//   because prometheus-cpp's histogram takes a lock and its counter loops over a compare-exchange.
//
// Names follow Prometheus' habits: "salius_records_issued_total", "salius_ack_latency_seconds".
#ifndef SALIUS_COMMON_METRICS_H_
#define SALIUS_COMMON_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace salius {

using prometheus::Counter;
using prometheus::Histogram;
using MetricLabels = prometheus::Labels;

// Upper bounds in seconds from 5 us to 10 s, for waits on a network or a disk.
inline constexpr std::array<double, 20> kLatencyBounds = {
    5e-6, 10e-6,  20e-6, 35e-6, 50e-6, 75e-6, 100e-6, 150e-6, 250e-6, 500e-6,
    1e-3, 2.5e-3, 5e-3,  10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 1,      10};

// Return the metric of this name and these labels in the process's registry, made at the first
// call (whose `help` counts). Asking for it as another type, or with a name that Prometheus
// refuses, ends the process. Takes a lock: keep the reference.
Counter& GetCounter(std::string_view name, std::string_view help,
                    const MetricLabels& labels = {}) noexcept;
// The bounds are kLatencyBounds.
Histogram& GetLatencyHistogram(std::string_view name, std::string_view help,
                               const MetricLabels& labels = {}) noexcept;

// Counts times by kLatencyBounds (each included) without a lock, for the write path.
class LatencyHistogram {
 public:
  void Observe(double seconds);
  // Returns the counts so far. An observation under way may be in them in part.
  prometheus::ClientMetric Collect() const;

 private:
  std::array<std::atomic<uint64_t>, kLatencyBounds.size() + 1> counts_{};
  std::atomic<double> sum_{0};
};

// The samples of one scrape, grouped by name.
class MetricSamples {
 public:
  void AddCounter(std::string_view name, std::string_view help, uint64_t value,
                  const MetricLabels& labels = {});
  void AddGauge(std::string_view name, std::string_view help, uint64_t value,
                const MetricLabels& labels = {});
  void AddHistogram(std::string_view name, std::string_view help,
                    const LatencyHistogram& histogram);

  std::vector<prometheus::MetricFamily> Take() && { return std::move(families_); }

 private:
  // Adds a sample to the family of this name.
  prometheus::ClientMetric& Add(prometheus::MetricType type, std::string_view name,
                                std::string_view help, const MetricLabels& labels);

  std::vector<prometheus::MetricFamily> families_;
};

// Serves the metrics at http://host:port/metrics until it is destroyed.
class MetricsServer {
 public:
  using Sources = std::vector<std::shared_ptr<prometheus::Collectable>>;

  // Starts a server at `address`, "host:port"; port 0 takes a free one. It shows the process's
  // registry and `sources`, which it calls from threads of its own, until its destructor returns.
  // UNAVAILABLE when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(std::string_view address,
                                                              Sources sources = {});
  ~MetricsServer();

  // Returns the port that the server listens on.
  int port() const;

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace salius

#endif  // SALIUS_COMMON_METRICS_H_
