// Metrics of this process, served in Prometheus' text format.
//
// A metric is made once, kept by reference and lives for ever; counting is one relaxed atomic
// addition. The same name with the same labels is the same metric. Names follow Prometheus' habits:
// "salius_records_issued_total", "salius_ack_latency_seconds".
#ifndef SALIUS_COMMON_METRICS_H_
#define SALIUS_COMMON_METRICS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace salius {

// A number that only grows.
class Counter {
 public:
  void Increment(uint64_t by = 1) { value_.fetch_add(by, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class Gauge {
 public:
  void Set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  void Add(int64_t by) { value_.fetch_add(by, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

// Counts observations by upper bounds (each included). Values above the last bound have a bucket of
// their own.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);

  void Observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  // Returns the observations in bucket i alone; i up to and including bounds().size().
  uint64_t BucketCount(size_t i) const { return counts_[i].load(std::memory_order_relaxed); }
  uint64_t Count() const;
  double Sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::vector<double> bounds_;
  const std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  std::atomic<double> sum_{0};
};

using MetricLabels = std::map<std::string, std::string>;

// Return the metric of this name and these labels, made at the first call (whose `help` counts).
// Asking for it as another type, or with a name that Prometheus refuses, aborts. Takes a lock: keep
// the reference.
Counter& GetCounter(std::string_view name, std::string_view help, const MetricLabels& labels = {});
Gauge& GetGauge(std::string_view name, std::string_view help, const MetricLabels& labels = {});
Histogram& GetHistogram(std::string_view name, std::string_view help, std::vector<double> bounds,
                        const MetricLabels& labels = {});

// Returns bounds in seconds from 5 us to 10 s, for waits on a network or a disk.
std::vector<double> LatencyBounds();

// Returns every metric in the text format, as the server gives it.
std::string MetricsText();

// Serves the metrics at http://host:port/metrics until it is destroyed.
class MetricsServer {
 public:
  // Starts a server at `address`, "host:port"; port 0 takes a free one. UNAVAILABLE when it cannot
  // be bound.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(std::string_view address);
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
