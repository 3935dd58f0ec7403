#include "recovery/agree/coverage.h"

#include <algorithm>
#include <iterator>

namespace salius::recovery {

bool Coverage::Add(Seq seq) {
  auto next = ranges_.upper_bound(seq);
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->second >= seq) return false;
    if (before->second + 1 == seq) {
      before->second = seq;
      if (next != ranges_.end() && next->first == seq + 1) {
        before->second = next->second;
        ranges_.erase(next);
      }
      return true;
    }
  }
  if (next != ranges_.end() && next->first == seq + 1) {
    const Seq last = next->second;
    ranges_.erase(next);
    ranges_[seq] = last;
  } else {
    ranges_[seq] = seq;
  }
  return true;
}

bool Coverage::Contains(Seq seq) const {
  const auto next = ranges_.upper_bound(seq);
  return next != ranges_.begin() && std::prev(next)->second >= seq;
}

std::optional<Seq> Coverage::FirstMissing(Seq after, Seq last) const {
  Seq candidate = after + 1;
  const auto next = ranges_.upper_bound(candidate);
  if (next != ranges_.begin()) candidate = std::max(candidate, std::prev(next)->second + 1);
  // Ranges never touch, so the seq behind one is not covered.
  if (candidate > last) return std::nullopt;
  return candidate;
}

std::optional<Seq> Coverage::LastMissing(Seq after, Seq last) const {
  Seq candidate = last;
  const auto next = ranges_.upper_bound(candidate);
  if (next != ranges_.begin() && std::prev(next)->second >= candidate) {
    candidate = std::prev(next)->first - 1;
  }
  if (candidate <= after) return std::nullopt;
  return candidate;
}

}  // namespace salius::recovery
