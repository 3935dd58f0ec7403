// The text by which a primary names a multicast group, and a replica notes it: "address:port", with
// "%interface" behind it when one was chosen.
//
// pure: no thread, lock, socket or clock. It uses no resolver either, which any client could keep
// busy: the address is a number.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/net.h"

namespace salius {

struct MulticastGroup {
  SocketAddress address;
  std::string place;      // "address:port"
  std::string interface;  // empty: none is named

  std::string ToString() const { return interface.empty() ? place : place + "%" + interface; }
};

// Parses the text. INVALID_ARGUMENT for anything else.
absl::StatusOr<MulticastGroup> ParseMulticastGroup(const std::string& text);

}  // namespace salius
