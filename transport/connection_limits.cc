#include "transport/connection_limits.h"

#include <algorithm>

namespace salius {

ConnectionLimits::Bounds ConnectionLimits::BoundsFor(uint64_t descriptors) {
  const uint64_t reserve = std::min<uint64_t>(descriptors / 2, kReserve);
  const size_t total = static_cast<size_t>(std::min<uint64_t>(descriptors - reserve, kMost));
  return {total, std::max<size_t>(total / kHostShare, 1)};
}

ConnectionLimits::Verdict ConnectionLimits::Judge(const std::string& host) const {
  const auto found = of_host_.find(host);
  if (found != of_host_.end() && found->second >= bounds_.per_host) {
    return Verdict::kHostHasItsShare;
  }
  return connections_.size() >= bounds_.total ? Verdict::kAllAreTaken : Verdict::kAdmitted;
}

void ConnectionLimits::Uncount(const std::string& host) {
  const auto found = of_host_.find(host);
  if (--found->second == 0) of_host_.erase(found);
}

void ConnectionLimits::Look(int64_t now_ns) {
  next_look_ns_ = now_ns + kLookNs;
  absl::erase_if(connections_, [this](const auto& one) {
    if (is_open_(one.first, one.second.cookie)) return false;
    Uncount(one.second.host);
    return true;
  });
}

ConnectionLimits::Verdict ConnectionLimits::Admit(int64_t now_ns, int fd, uint64_t cookie,
                                                  const std::string& host) {
  // The kernel gives a descriptor away again only after its connection has ended.
  if (const auto before = connections_.find(fd); before != connections_.end()) {
    Uncount(before->second.host);
    connections_.erase(before);
  }
  Verdict verdict = Judge(host);
  if (verdict != Verdict::kAdmitted && now_ns >= next_look_ns_) {
    Look(now_ns);
    verdict = Judge(host);
  }
  if (verdict != Verdict::kAdmitted) return verdict;
  connections_[fd] = {cookie, host};
  ++of_host_[host];
  return verdict;
}

}  // namespace salius
