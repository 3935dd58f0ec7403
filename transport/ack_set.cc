#include "transport/ack_set.h"

#include <algorithm>
#include <iterator>

#include "common/check.h"

namespace salius {

AckSet::AckSet(Seq base, size_t max_ranges)
    : base_(base), contiguous_(base - 1), max_ranges_(max_ranges) {
  SALIUS_CHECK(base > 0);
}

AckSet::AddResult AckSet::Check(Seq seq) const {
  if (seq < base_) return AddResult::kBelowBase;
  if (seq <= contiguous_) return AddResult::kHeld;
  const auto next = ranges_.upper_bound(seq);
  bool joins = seq == contiguous_ + 1 || (next != ranges_.end() && next->first == seq + 1);
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (seq <= before->second) return AddResult::kHeld;
    joins = joins || seq == before->second + 1;
  }
  if (!joins && ranges_.size() >= max_ranges_) return AddResult::kTooManyRanges;
  return AddResult::kAdded;
}

AckSet::AddResult AckSet::Add(Seq seq) {
  const AddResult result = Check(seq);
  if (result != AddResult::kAdded) return result;
  auto next = ranges_.upper_bound(seq);
  Seq last = seq;
  if (next != ranges_.end() && next->first == seq + 1) {
    last = next->second;
    next = ranges_.erase(next);
  }
  if (seq == contiguous_ + 1) {
    contiguous_ = last;
    return result;
  }
  if (next != ranges_.begin() && std::prev(next)->second + 1 == seq) {
    std::prev(next)->second = last;
    return result;
  }
  ranges_.emplace_hint(next, seq, last);
  return result;
}

void AckSet::TrimTo(Seq seq) {
  if (seq <= contiguous_) return;
  contiguous_ = seq;
  while (!ranges_.empty() && ranges_.begin()->first <= contiguous_ + 1) {
    contiguous_ = std::max(contiguous_, ranges_.begin()->second);
    ranges_.erase(ranges_.begin());
  }
}

Seq AckSet::highest() const { return ranges_.empty() ? contiguous_ : ranges_.rbegin()->second; }

bool AckSet::Contains(Seq seq) const { return Check(seq) == AddResult::kHeld; }

uint64_t AckSet::CountAbove(Seq after) const {
  const Seq low = std::max(after, base_ - 1);
  uint64_t count = contiguous_ > low ? contiguous_ - low : 0;
  for (const auto& [first, last] : ranges_) {
    if (last > low) count += last - std::max(first - 1, low);
  }
  return count;
}

void AckSet::FillAck(AckPayload& ack) const {
  ack.base = base_;
  ack.contiguous = contiguous_;
  ack.ranges.clear();
  for (const auto& [first, last] : ranges_) {
    if (ack.ranges.size() == kMaxAckRanges) break;
    ack.ranges.push_back({first, last});
  }
}

}  // namespace salius
