// Finds replicas that share a host with the primary or with each other: those fail together, and
// count as one (docs/install.md).
//
// A host is recognised by its addresses and by the boot id that a replica reports. A replica is on
// this host if its address is loopback or belongs to an interface here. Two replicas with one
// address share a host.
//
// pure, except ThisHost().
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace salius {

struct PlacedReplica {
  std::string address;  // as configured
  std::string ip;       // numeric, without a port; empty: not known
  std::string boot_id;  // empty: not known
};

struct PrimaryHost {
  std::vector<std::string> ips;  // of its interfaces
  std::string boot_id;
};
PrimaryHost ThisHost();

// Returns one sentence for each group of replicas on one host; empty when no group is known.
std::vector<std::string> SharedHostWarnings(absl::Span<const PlacedReplica> replicas,
                                            const PrimaryHost& primary);

// Advice on such a group, for people.
inline constexpr char kSharedHostAdvice[] =
    "give each a host of its own, or set allow_same_host = true in volume.toml";

}  // namespace salius
