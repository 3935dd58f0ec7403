// A replica's answer to OpenSession (proto/control.proto) as a value: what is believed of it.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "proto/control.pb.h"

namespace salius {

struct OpenedSession {
  Incarnation incarnation = 0;  // never 0
  uint16_t udp_port = 0;        // never 0
  uint64_t free_bytes = 0;      // any number
  std::string host;             // boot id of its host, printable; empty: it says none
  StoreId store = 0;            // of its promise file; 0: it has none
};
// What a replica holds of a volume: zeros when it does not know the volume.
struct HeldSession {
  Incarnation incarnation = 0;  // never 0
  Epoch epoch = 0;
  uint64_t session = 0;
};
// INTERNAL for an answer without an incarnation.
absl::StatusOr<HeldSession> HeldFrom(const std::string& replica,
                                     const control::InventoryResponse& message);

// INTERNAL for an answer that says less. `replica`: its name, for what is said of it.
absl::StatusOr<OpenedSession> OpenedFrom(const std::string& replica,
                                         const control::OpenSessionResponse& message);

}  // namespace salius
