#pragma once

#include "absl/status/status.h"
#include "client/volume/node.h"

namespace salius {

// Refuses before the stamp a change that applying would refuse, because recovery would meet it
// again: EPERM for an immutable or append-only object.
absl::Status CheckChangeable(const Node& node);

}  // namespace salius
