#include "client/fuse/dir_offsets.h"

namespace salius {

DirOffsets::Place DirOffsets::Find(uint64_t offset) const {
  if (offset == 0) return {};
  if (offset >= first_ && offset - first_ < cookies_.size()) return {cookies_[offset - first_], 0};
  return {0, offset};
}

std::optional<uint64_t> DirOffsets::Number(uint64_t previous, uint64_t cookie) {
  if (cookies_.empty()) first_ = previous + 1;
  const uint64_t expected = previous + 1;
  if (in_order_) {
    if (expected == first_ + cookies_.size()) return Append(cookie);
    if (expected >= first_ && expected - first_ < cookies_.size() &&
        cookies_[expected - first_] == cookie) {
      return expected;
    }
    in_order_ = false;
    for (size_t i = 0; i < cookies_.size(); ++i) offsets_.try_emplace(cookies_[i], first_ + i);
  }
  const auto known = offsets_.find(cookie);
  return known != offsets_.end() ? known->second : Append(cookie);
}

std::optional<uint64_t> DirOffsets::Append(uint64_t cookie) {
  const uint64_t offset = first_ + cookies_.size();
  if (offset > kMaxOffset) return std::nullopt;
  if (kept_.load() >= max_kept_ && cookies_.size() > 1) {
    const size_t half = cookies_.size() / 2;
    for (size_t i = 0; i < half && !in_order_; ++i) offsets_.erase(cookies_[i]);
    cookies_.erase(cookies_.begin(), cookies_.begin() + static_cast<ptrdiff_t>(half));
    cookies_.shrink_to_fit();
    first_ += half;
    kept_.fetch_sub(half);
  }
  cookies_.push_back(cookie);
  kept_.fetch_add(1);
  if (!in_order_) offsets_.try_emplace(cookie, offset);
  return offset;
}

void DirOffsets::Rewind() {
  if (cookies_.size() > kKeptOverRewind || (first_ > 1 && !cookies_.empty())) Clear();
}

void DirOffsets::Clear() {
  kept_.fetch_sub(cookies_.size());
  cookies_.clear();
  offsets_.clear();
  in_order_ = true;
}

}  // namespace salius
