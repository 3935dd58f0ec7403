// Checks of the addresses that a mount or salius-run is given. Metrics travel unencrypted, and
// records without keys.
//
// Threads: any.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace salius {

// Checks that the replicas' addresses go together (ResolveReplicas). Unless `anywhere` (a trusted
// network, or keys) they must also be on this host, because records travel unencrypted.
// INVALID_ARGUMENT names a replica that is not. UNAVAILABLE: no name has an address yet; a single
// name without one may get it later.
absl::Status CheckReplicas(const std::vector<std::string>& replicas, bool anywhere);

// Checks the address of the metrics, which may be empty, likewise.
absl::Status CheckMetrics(const std::string& metrics, bool insecure);

}  // namespace salius
