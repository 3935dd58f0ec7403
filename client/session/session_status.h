// The state of a session, for `salius status`, the metrics and the logs (I10).
#pragma once

#include <cstdint>
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
  std::string host;  // boot id of its host, as it says; empty: not known
  std::string ip;    // numeric, without a port; empty: not known
};
struct SessionStatus {
  Epoch epoch = 0;
  std::string mode;         // replicated, local, failed
  std::string mode_detail;  // the reason, and the change under way
  uint64_t mode_since_unix_ms = 0;  // when it entered the mode, by the wall clock then
  uint64_t mode_for_ms = 0;         // the same by the monotonic clock, until now
  Watermarks marks;
  uint64_t uncheckpointed_bytes = 0;
  uint64_t oldest_uncheckpointed_ms = 0;
  uint64_t stable_log_used_bytes = 0, stable_log_capacity_bytes = 0;
  std::vector<ReplicaReport> replicas;
  std::string failure;
};

}  // namespace salius
