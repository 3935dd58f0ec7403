// Measures how long the oldest record of a log has been waiting for a trim, to within a sample's
// distance and in bounded memory. A sample (t, s) means that record s was held at time t. As long
// as s is not trimmed, a record at least that old is there.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "common/ids.h"

namespace salius {

class AgeTracker {
 public:
  static constexpr size_t kMaxSamples = 128;

  // Samples are at least `distance_ns` apart.
  explicit AgeTracker(int64_t distance_ns) : distance_ns_(distance_ns) {}

  // Notes that `highest` is the largest seq held at `now_ns` (monotonic).
  void Note(int64_t now_ns, Seq highest) {
    if (highest <= newest_) return;
    if (!samples_.empty() && now_ns - samples_.back().time_ns < distance_ns_) return;
    if (samples_.size() >= kMaxSamples) HalveSamples();
    samples_.push_back({now_ns, highest});
    newest_ = highest;
  }

  void TrimTo(Seq seq) {
    while (!samples_.empty() && samples_.front().seq <= seq) samples_.pop_front();
  }

  // Returns the age of the oldest sample that is not trimmed; 0 when there is none.
  int64_t AgeNs(int64_t now_ns) const {
    return samples_.empty() ? 0 : now_ns - samples_.front().time_ns;
  }

  size_t sample_count() const { return samples_.size(); }

 private:
  struct Sample {
    int64_t time_ns;
    Seq seq;
  };

  // Halves the samples; the oldest stays, so the age does not shrink.
  void HalveSamples() {
    std::deque<Sample> kept;
    for (size_t i = 0; i < samples_.size(); i += 2) kept.push_back(samples_[i]);
    samples_.swap(kept);
  }

  int64_t distance_ns_;
  Seq newest_ = 0;
  std::deque<Sample> samples_;
};

}  // namespace salius
