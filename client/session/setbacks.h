// How long to wait before something is tried again that went wrong: the pause doubles with each
// setback, and time that went well makes it shorter again. Each setback is forgotten for four
// times the pause that it caused, so that a link that fails once an hour never waits longer than
// after its first failure, and one that fails all the time does.
//
// pure. Times in ns.
#pragma once

#include <algorithm>
#include <cstdint>

namespace salius {

class Setbacks {
 public:
  // After the first setback the pause is 2 * `unit_ns`, and after `most` it is longest.
  Setbacks(int64_t unit_ns, int most) : unit_ns_(unit_ns), most_(most) {}

  // Something went wrong, after `well_ns` in which nothing did (0 or less: none).
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
