// Which replicas share a host with the primary or with each other: those fail together, and count
// as one (docs/operating.md).
//
// A host is told by addresses (loopback, an interface of this host, the same address twice) and by
// the boot id that a replica gives of its own.
//
// pure, but for ThisHost().
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

// One sentence for each group of replicas on one host; empty: there is none, as far as is known.
std::vector<std::string> SharedHostWarnings(absl::Span<const PlacedReplica> replicas,
                                            const PrimaryHost& primary);

// What to do about them, for people.
inline constexpr char kSharedHostAdvice[] =
    "give each a host of its own, or set allow_same_host = true in volume.toml";

}  // namespace salius
