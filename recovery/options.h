// The options of a recovery.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "common/ids.h"
#include "recovery/report.h"

namespace salius {

class Credentials;  // transport/credentials.h

namespace recovery {
class ReplayTarget;
class ReplicaConnector;
}  // namespace recovery

struct RecoveryOptions {
  bool dry_run = false;  // report what a run would do; change nothing, here or at a replica
  // Continue where too few members answer, records are missing, or a file is missing. The report
  // lists everything unaccounted for.
  bool force = false;
  // The largest T allowed, for good; records already on disk beyond it stay there. Refused without
  // `force` when an acknowledged record would be dropped.
  std::optional<Seq> until;

  uint64_t rpc_timeout_ms = 5000;          // one answer to fence or inventory
  uint64_t fence_timeout_ms = 30000;       // unreachable replicas are asked again till then
  uint64_t fence_grace_ms = 1000;          // wait for the rest once enough have answered
  uint64_t local_fence_timeout_ms = 2000;  // the same in mode local, where none is needed
  uint64_t fetch_timeout_ms = 60000;       // one fetch stream, plus 1 s for each 4 MiB it announced
  int fetch_attempts = 5;                  // streams per replica before it is given up
  uint64_t fetch_piece = 4096;  // least records per piece, when several replicas are asked at once

  std::function<void(const RecoveryProgress&)> on_progress;  // called on the calling thread
  // Called at each step, for crash tests. An error returned here ends the run, as a crash would.
  std::function<absl::Status(RecoveryStep)> step_hook;
  // The keys of this process; null: none.
  std::shared_ptr<Credentials> keys = nullptr;
  // The way to replicas; null: gRPC with `keys`. For tests.
  recovery::ReplicaConnector* connector = nullptr;
  // The target of the replay; null: the backing file system. For tests.
  recovery::ReplayTarget* target = nullptr;
  // Asks one replica after the other, each once, on the calling thread. For simulation.
  bool one_thread = false;
  // When not null, receives the findings so far, also when the run fails.
  RecoveryReport* partial_report = nullptr;
};

}  // namespace salius
