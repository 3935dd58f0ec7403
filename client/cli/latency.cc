#include "client/cli/latency.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace salius::cli {

double PercentileUs(absl::Span<const uint64_t> sorted_ns, double percent) {
  if (sorted_ns.empty()) return 0;
  // The subtraction makes 99.9% of 1000 equal 999, not the 999.0000000000001 of binary fractions.
  const double rank = std::ceil(percent / 100.0 * static_cast<double>(sorted_ns.size()) - 1e-9);
  const size_t index =
      std::clamp<size_t>(static_cast<size_t>(std::max(rank, 0.0)), 1, sorted_ns.size()) - 1;
  return static_cast<double>(sorted_ns[index]) / 1e3;
}

LatencySummary Summarize(std::vector<uint64_t> samples_ns, int64_t elapsed_ns) {
  std::sort(samples_ns.begin(), samples_ns.end());
  LatencySummary summary;
  summary.operations = samples_ns.size();
  if (elapsed_ns > 0) {
    summary.ops_per_second =
        static_cast<double>(samples_ns.size()) * 1e9 / static_cast<double>(elapsed_ns);
  }
  summary.p50_us = PercentileUs(samples_ns, 50);
  summary.p99_us = PercentileUs(samples_ns, 99);
  summary.p999_us = PercentileUs(samples_ns, 99.9);
  summary.max_us = PercentileUs(samples_ns, 100);
  return summary;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

LatencySummary MedianOfRounds(absl::Span<const LatencySummary> rounds) {
  const auto median = [rounds](double LatencySummary::*figure) {
    std::vector<double> values;
    for (const LatencySummary& round : rounds) values.push_back(round.*figure);
    return Median(std::move(values));
  };
  LatencySummary summary;
  for (const LatencySummary& round : rounds) {
    summary.operations += round.operations;
    summary.max_us = std::max(summary.max_us, round.max_us);
  }
  summary.ops_per_second = median(&LatencySummary::ops_per_second);
  summary.p50_us = median(&LatencySummary::p50_us);
  summary.p99_us = median(&LatencySummary::p99_us);
  summary.p999_us = median(&LatencySummary::p999_us);
  summary.slowest_writer = median(&LatencySummary::slowest_writer);
  summary.median_writer = median(&LatencySummary::median_writer);
  return summary;
}

}  // namespace salius::cli
