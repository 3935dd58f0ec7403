// A replica's answers (proto/control.proto) as values, after their fields were checked.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/ids.h"
#include "proto/control.pb.h"
#include "transport/sealer.h"

namespace salius {

struct OpenedSession {
  Incarnation incarnation = 0;  // never 0
  uint16_t udp_port = 0;        // never 0
  uint64_t free_bytes = 0;      // any number
  std::string host;             // boot id of its host, printable; empty: it says none
  StoreId store = 0;            // of its promise file; 0: it has none
  std::optional<SealKey> ack_key;  // of its acknowledgements; none: it seals nothing
  bool compact_records = false;  // it takes compact frames
};
// The session that a replica holds of a volume: zeros when it does not know the volume.
struct HeldSession {
  Incarnation incarnation = 0;  // never 0
  Epoch epoch = 0;
  uint64_t session = 0;
};
// Returns the answer as a value; INTERNAL for one without an incarnation.
absl::StatusOr<HeldSession> HeldFrom(const std::string& replica,
                                     const control::InventoryResponse& message);

// Returns the answer as a value; INTERNAL for one that lacks a required field. `replica`: its name,
// for messages. `sealed`: a key must be in the answer, else UNIMPLEMENTED.
absl::StatusOr<OpenedSession> OpenedFrom(const std::string& replica,
                                         const control::OpenSessionResponse& message,
                                         bool sealed = false);

}  // namespace salius
