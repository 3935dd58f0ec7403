#include "client/status/placement.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/host.h"
#include "common/net.h"

namespace salius {
namespace {

bool IsLoopbackText(const std::string& ip) {
  return absl::StartsWith(ip, "127.") || absl::StartsWith(ip, "::ffff:127.") || ip == "::1";
}

bool IsOn(const PlacedReplica& replica, const PrimaryHost& primary) {
  if (!replica.boot_id.empty() && replica.boot_id == primary.boot_id) return true;
  return IsLoopbackText(replica.ip) ||
         std::find(primary.ips.begin(), primary.ips.end(), replica.ip) != primary.ips.end();
}

bool OnOneHost(const PlacedReplica& a, const PlacedReplica& b) {
  return (!a.boot_id.empty() && a.boot_id == b.boot_id) || (!a.ip.empty() && a.ip == b.ip);
}

}  // namespace

PrimaryHost ThisHost() { return {InterfaceHosts(), BootId().value_or("")}; }

std::vector<std::string> SharedHostWarnings(absl::Span<const PlacedReplica> replicas,
                                            const PrimaryHost& primary) {
  std::vector<std::string> warnings;
  std::vector<std::string> here;
  std::vector<const PlacedReplica*> elsewhere;
  for (const PlacedReplica& replica : replicas) {
    if (IsOn(replica, primary)) {
      here.push_back(replica.address);
    } else {
      elsewhere.push_back(&replica);
    }
  }
  if (!here.empty()) {
    warnings.push_back(absl::StrCat(
        here.size() == 1 ? "replica " : "replicas ", absl::StrJoin(here, ", "),
        here.size() == 1 ? " is" : " are",
        " on this host, the primary itself: a crash of the host loses what they hold with it"));
  }
  while (!elsewhere.empty()) {
    std::vector<const PlacedReplica*> group = {elsewhere.front()};
    elsewhere.erase(elsewhere.begin());
    // A replica may share an address with the second and a boot id with the third.
    for (size_t i = 0; i < group.size(); ++i) {
      for (auto at = elsewhere.begin(); at != elsewhere.end();) {
        if (OnOneHost(*group[i], **at)) {
          group.push_back(*at);
          at = elsewhere.erase(at);
        } else {
          ++at;
        }
      }
    }
    if (group.size() < 2) continue;
    const auto name = [](std::string* out, const PlacedReplica* r) { out->append(r->address); };
    warnings.push_back(absl::StrCat("replicas ", absl::StrJoin(group, ", ", name),
                                    " are on one host: its crash loses all their copies at once"));
  }
  return warnings;
}

}  // namespace salius
