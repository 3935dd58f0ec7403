// The rule for peers while connections have no keys: without the user's word that the network is
// trusted (the option "insecure") they are on this host. Pure.
#pragma once

#include "common/net.h"

namespace salius {

// Returns whether this host may be reached at `address`, or may reach a peer there.
inline bool AllowedWithoutKeys(const SocketAddress& address, bool insecure) {
  return insecure || IsLoopback(address);
}

}  // namespace salius
