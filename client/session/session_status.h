// The state of a session, for `salius status`, the metrics and the logs (I10).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"

namespace salius {

struct Watermarks {
  Seq checkpoint = 0, applied = 0, durable = 0, issued = 0;
};

struct ReplicaReport {
  std::string address;
  bool member = false;     // in the noted state: its acks count
  bool connected = false;  // has an open session and answers
  Incarnation incarnation = 0;
  Seq base = 0, contiguous = 0;
  uint64_t lag_records = 0, lag_bytes = 0, rtt_us = 0, free_bytes = 0, resent = 0;
  std::string problem;
  // The largest datagram of first transmissions, and the largest on its route. The first is smaller
  // where larger ones are lost on the way.
  uint32_t datagram_bytes = 0, route_bytes = 0;
  // There is a multicast group that does not reach the replica: first transmissions go by unicast.
  bool group_unheard = false;
  std::string control_problem;  // why a recovery could not reach it; empty: it could
  std::string host;             // boot id of its host, as it says; empty: not known
  std::string ip;               // numeric, without a port; empty: not known
};
// The use of a direct volume by its processes, since the session began.
struct DirectUse {
  struct Reason {
    std::string name;    // direct::ReasonName
    uint64_t syncs = 0;  // that needed a real fsync(2) for it
  };
  uint64_t processes = 0;  // attached now
  uint64_t records = 0, record_bytes = 0;
  uint64_t syncs = 0, real_syncs = 0;  // all, and those by fsync(2)
  uint64_t dead_owners = 0;            // locks whose owner had died
  uint64_t voids = 0;                  // records that no living process completed
  std::vector<Reason> reasons;         // those that occurred
  // With commit=external (client/direct/window/layout.h, Promises).
  uint64_t early_syncs = 0, owed_syncs = 0;
  uint64_t outputs = 0, paid_outputs = 0, refused_outputs = 0;
  std::string early_end;  // why sync calls do not return early any more; empty: they do
};

// The keys of a sealed session, since it began.
struct SealingUse {
  struct Refusal {
    std::string reason;  // SealRefusalName
    uint64_t datagrams = 0;
  };
  uint64_t key_changes = 0;
  std::vector<Refusal> refusals;  // all reasons
};

struct SessionStatus {
  Epoch epoch = 0;
  std::string mode;                 // replicated, local, failed
  std::string mode_detail;          // the reason, and the change under way
  uint64_t mode_since_unix_ms = 0;  // when it entered the mode, by the wall clock then
  uint64_t mode_for_ms = 0;         // the same by the monotonic clock, until now
  Watermarks marks;
  uint64_t uncheckpointed_bytes = 0;
  uint64_t oldest_uncheckpointed_ms = 0;
  uint64_t stable_log_used_bytes = 0, stable_log_capacity_bytes = 0;
  std::vector<ReplicaReport> replicas;
  std::string failure;
  std::optional<DirectUse> direct;    // of a direct volume
  std::optional<SealingUse> sealing;  // unset: datagrams are not sealed
};

}  // namespace salius
