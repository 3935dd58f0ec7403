#include "replica/caller_limits.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace salius {

CallerLimits::Caller& CallerLimits::Find(int64_t now_ns, const std::string& identity) {
  const auto found = callers_.find(identity);
  if (found != callers_.end()) return found->second;
  if (callers_.size() >= options_.callers) {
    callers_.erase(std::min_element(
        callers_.begin(), callers_.end(),
        [](const auto& a, const auto& b) { return a.second.last_ns < b.second.last_ns; }));
  }
  Caller& made = callers_[identity];
  made.calls = options_.calls_at_once;
  made.last_ns = now_ns;
  return made;
}

absl::Status CallerLimits::Admit(int64_t now_ns, const std::string& identity,
                                 const std::string& address) {
  Caller& caller = Find(now_ns, identity);
  const double passed_s = static_cast<double>(std::max<int64_t>(now_ns - caller.last_ns, 0)) / 1e9;
  caller.calls = std::min<double>(caller.calls + passed_s * options_.calls_per_s,
                                  options_.calls_at_once);
  caller.last_ns = std::max(caller.last_ns, now_ns);
  if (caller.calls < 1) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s makes more than %d calls a second: make fewer, or use another identity "
                        "for each host",
                        identity, options_.calls_per_s));
  }
  const auto known = caller.connections.find(address);
  if (known == caller.connections.end() && caller.connections.size() >= options_.connections) {
    absl::erase_if(caller.connections,
                   [&](const auto& one) { return now_ns - one.second >= kWindowNs; });
    if (caller.connections.size() >= options_.connections) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("%s has used %d connections within a minute: make fewer, or use another "
                          "identity for each host",
                          identity, options_.connections));
    }
  }
  caller.connections[address] = now_ns;
  caller.calls -= 1;
  return absl::OkStatus();
}

}  // namespace salius
