#pragma once

#include "absl/status/status.h"
#include "client/volume/node.h"
#include "storage/backing.h"

namespace salius {

// Refuses before the stamp a change that applying would refuse, because recovery would meet it
// again: EPERM for an immutable or append-only object of `backing`.
absl::Status CheckChangeable(Backing& backing, const Node& node);

}  // namespace salius
