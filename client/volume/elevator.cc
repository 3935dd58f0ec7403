#include "client/volume/elevator.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace salius {

void Elevator::Add(const WorkPlace& place, Work work) {
  const uint64_t number = next_number_++;
  by_age_.emplace(number, place);
  waiting_.emplace(Key{place, number}, std::move(work));
  most_waited_ = std::max(most_waited_, waiting_.size());
}

Elevator::Work Elevator::Take() {
  SALIUS_CHECK(!waiting_.empty(), "no work waits");
  auto next = waiting_.lower_bound(Key{last_, 0});
  const bool too_long = takes_ >= 4 * most_waited_ + kSpare;
  if (too_long || next == waiting_.end()) {
    const auto oldest = by_age_.begin();
    next = too_long ? waiting_.find(Key{oldest->second, oldest->first}) : waiting_.begin();
    takes_ = 0;
    most_waited_ = waiting_.size();
  }
  ++takes_;
  last_ = next->first.place;
  by_age_.erase(next->first.number);
  Work work = std::move(next->second);
  waiting_.erase(next);
  return work;
}

}  // namespace salius
