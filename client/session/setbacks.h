// Computes the pause before a failed action is tried again. The pause doubles with each setback. A
// setback is forgotten when four times its pause has passed without another. So a link that fails
// once an hour never waits longer than after its first failure; one that fails all the time does.
//
// pure. Times in ns.
#pragma once

#include <algorithm>
#include <cstdint>

namespace salius {

class Setbacks {
 public:
  // Makes a counter. After the first setback the pause is 2 * `unit_ns`; after `most` it is the
  // longest.
  Setbacks(int64_t unit_ns, int most) : unit_ns_(unit_ns), most_(most) {}

  // Counts a setback after `well_ns` without one (0 or less: no such time).
  void Add(int64_t well_ns) {
    while (count_ > 0 && well_ns >= kForgetPauses * pause_ns()) {
      well_ns -= kForgetPauses * pause_ns();
      --count_;
    }
    count_ = std::min(count_ + 1, most_);
  }

  int64_t pause_ns() const { return count_ == 0 ? 0 : unit_ns_ << count_; }

 private:
  static constexpr int64_t kForgetPauses = 4;
  int64_t unit_ns_;
  int most_;
  int count_ = 0;
};

}  // namespace salius
