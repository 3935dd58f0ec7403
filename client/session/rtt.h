// Round-trip estimator and re-send time-out: smoothed RTT and its deviation (RFC 6298's filter),
// with exponential back-off while nothing is heard.
//
// pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace salius {

class RttEstimator {
 public:
  // Makes an estimator with these bounds of the time-out in ns. It is never below `min_ns`, and
  // back-off ends at `max_ns`. A slower link gets its own time, up to four times `max_ns`, because
  // otherwise everything would be sent twice. `initial_ns` is used until the first sample.
  RttEstimator(int64_t min_ns, int64_t max_ns, int64_t initial_ns)
      : min_ns_(min_ns), max_ns_(max_ns), initial_ns_(initial_ns) {}

  void Sample(int64_t rtt_ns) {
    if (rtt_ns < 0) return;
    if (srtt_ns_ == 0) {
      srtt_ns_ = std::max<int64_t>(rtt_ns, 1);
      var_ns_ = rtt_ns / 2;
    } else {
      const int64_t error = rtt_ns - srtt_ns_;
      srtt_ns_ += error / 8;
      var_ns_ += (std::abs(error) - var_ns_) / 4;
    }
    backoff_ = 0;
  }
  void BackOff() { backoff_ = std::min(backoff_ + 1, 6); }
  void ResetBackOff() { backoff_ = 0; }

  // Returns the time-out of one transmission in ns, back-off included.
  int64_t timeout_ns() const {
    return std::min(std::max(max_ns_, base_ns()), base_ns() << backoff_);
  }
  // Returns the same without back-off: the longest time of a healthy answer.
  int64_t base_ns() const {
    if (srtt_ns_ == 0) return initial_ns_;
    return std::clamp(srtt_ns_ + 4 * var_ns_, min_ns_, 4 * max_ns_);
  }
  int64_t srtt_ns() const { return srtt_ns_; }

 private:
  int64_t min_ns_, max_ns_, initial_ns_;
  int64_t srtt_ns_ = 0, var_ns_ = 0;
  int backoff_ = 0;
};

}  // namespace salius
