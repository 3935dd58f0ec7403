// Takes and gives back every stripe lock once, without waiting: afterwards every write that began
// before the pass has reserved its record, or was made without one.
//
// No thread or clock.
#pragma once

#include <cstdint>
#include <vector>

#include "client/direct/window/layout.h"
#include "client/direct/window/stripes.h"

namespace salius::direct {

class StripePass {
 public:
  explicit StripePass(const SharedWindow& window) : window_(window) {}

  // Begins a pass.
  void Begin() { left_.assign(window_.header().stripes, true); }
  // Passes the stripes that are free now. Returns whether every stripe has been free once since
  // Begin.
  bool Go() {
    bool all = true;
    for (uint32_t stripe = 0; stripe < left_.size(); ++stripe) {
      if (!left_[stripe]) continue;
      if (TryTakeStripe(window_, stripe)) {
        GiveStripe(window_, stripe);
        left_[stripe] = false;
      } else {
        all = false;
      }
    }
    return all;
  }

 private:
  const SharedWindow window_;
  std::vector<bool> left_;
};

}  // namespace salius::direct
