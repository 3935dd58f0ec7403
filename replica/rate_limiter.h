// Lets one event per source and interval through; remembers a bounded number of sources.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "common/strings.h"

namespace salius {

class RateLimiter {
 public:
  RateLimiter(int64_t interval_ns, size_t max_sources)
      : interval_ns_(interval_ns), max_sources_(max_sources) {}

  // Returns true when `source` had no event let through in the last interval; this one then counts.
  // With too many sources all are forgotten: a flood of forged ones costs answers, not memory.
  bool Allow(int64_t now_ns, std::string_view source) {
    const auto it = last_.find(Av(source));
    if (it != last_.end()) {
      if (now_ns - it->second < interval_ns_) return false;
      it->second = now_ns;
      return true;
    }
    if (last_.size() >= max_sources_) last_.clear();
    last_.emplace(std::string(source), now_ns);
    return true;
  }

  size_t sources() const { return last_.size(); }

 private:
  const int64_t interval_ns_;
  const size_t max_sources_;
  absl::flat_hash_map<std::string, int64_t> last_;
};

}  // namespace salius
