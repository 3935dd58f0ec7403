// The keys of a sealed session, published to the processes of a direct volume.
#pragma once

#include "client/direct/window/layout.h"
#include "client/session/offered_keys.h"

namespace salius::direct {

// Makes `keys` those of the processes. A replica's key that they have keeps its replay window.
// Takes the window lock.
void PublishKeys(const SharedWindow& window, const KeysInUse& keys);

}  // namespace salius::direct
