// Fence: makes the replicas promise to take no records of the old epoch any more, and receives
// their inventories (docs/recovery.md, I4). In a dry run it only asks.
//
// Threads: one per replica while FenceAll runs; all have ended when it returns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "log/state_file.h"
#include "recovery/agree/quorum.h"
#include "recovery/agree/replica_client.h"

namespace salius::recovery {

struct Peer {
  std::string address;
  std::unique_ptr<ReplicaClient> client;
  std::optional<Answer> answer;  // with `refused` it does not count
  bool refused = false;
  absl::Status error;  // when there is no answer
};

// Makes peers for every member of `state` and every other address of `configured`.
std::vector<Peer> MakePeers(const VolumeState& state, absl::Span<const std::string> configured,
                            ReplicaConnector& connector);

struct FenceRequest {
  Epoch epoch = 0;  // to promise
  uint64_t token = 0;
  bool ask_only = false;
  uint64_t rpc_timeout_ms = 0;
  uint64_t total_timeout_ms = 0;
  uint64_t grace_ms = 0;    // wait for the rest once a quorum has answered
  bool one_thread = false;  // ask one replica after the other, each once
};

// Asks every peer at once. A peer that cannot be reached is asked again, until enough members count
// and the grace is over, or the total time is over. When no quorum is needed, each is asked once.
// `on_answers` receives the number of answers, on the calling thread.
void FenceAll(const VolumeState& state, const FenceRequest& request,
              const std::function<void(uint64_t)>& on_answers, std::vector<Peer>* peers);

// Returns the answers that were not refusals.
std::vector<Answer> AnswersOf(absl::Span<const Peer> peers);

// Largest distance above the fence's epoch of an epoch in an answer that counts. A forced recovery
// takes an epoch above every epoch in the answers. This bound leaves room for as many sessions
// (kMaxCount is the last epoch that can be noted).
inline constexpr Epoch kFarthestEpoch = Epoch{1} << 32;

// Returns OK when no peer refused. Otherwise DATA_LOSS (the peer knows a later epoch) or
// FAILED_PRECONDITION (another recovery holds it), with the reason.
absl::Status CheckRefusals(absl::Span<const Peer> peers, Epoch fence_epoch);

}  // namespace salius::recovery
