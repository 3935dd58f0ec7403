#include "client/volume/elevator.h"

#include <utility>

#include "common/check.h"

namespace salius {

void Elevator::Add(const WorkPlace& place, Work work) {
  const uint64_t number = next_number_++;
  by_age_.emplace(number, Oldest{place, takes_ + 4 * waiting_.size() + kSpare});
  waiting_.emplace(Key{place, number}, std::move(work));
}

Elevator::Work Elevator::Take() {
  SALIUS_CHECK(!waiting_.empty(), "no work waits");
  const auto oldest = by_age_.begin();
  auto next = waiting_.lower_bound(Key{last_, 0});
  if (oldest->second.due <= takes_) next = waiting_.find(Key{oldest->second.place, oldest->first});
  if (next == waiting_.end()) next = waiting_.begin();
  last_ = next->first.place;
  by_age_.erase(next->first.number);
  Work work = std::move(next->second);
  waiting_.erase(next);
  ++takes_;
  return work;
}

}  // namespace salius
