// Latencies of single operations and their summary: percentiles per round, and the median of
// rounds, so that one disturbed round does not decide a comparison.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace salius::cli {

// The figures of one round of one target, or the median of its rounds.
struct LatencySummary {
  uint64_t operations = 0;
  double ops_per_second = 0;
  double p50_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  double max_us = 0;
  // Operations of the slowest and of the median writer.
  double slowest_writer = 0;
  double median_writer = 0;
};

// Returns the latency below which `percent` (0 to 100) of the sorted samples lie. It is the nearest
// rank, so it is always a latency that happened. 0 when there are no samples.
double PercentileUs(absl::Span<const uint64_t> sorted_ns, double percent);

// Sorts `samples_ns` and summarises them. `elapsed_ns` is the round's length in real time; with
// several writers it differs from the sum of the samples.
LatencySummary Summarize(std::vector<uint64_t> samples_ns, int64_t elapsed_ns);

// Returns the middle value (the mean of the two middle ones for an even count); 0 when there are
// none.
double Median(std::vector<double> values);

// Returns the median of every figure over the rounds, except `operations` (the sum) and `max_us`
// (the largest).
LatencySummary MedianOfRounds(absl::Span<const LatencySummary> rounds);

}  // namespace salius::cli
