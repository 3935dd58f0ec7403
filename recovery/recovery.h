// Recovery of a volume after its primary died (docs/recovery.md):
//
//     lock -> fence -> collect -> merge -> pin -> replay -> sync -> commit
//
// The same code runs in `salius-recover` and at mount. docs/recovery.md has every case with its
// reason, and what a crash at each step leaves.
//
// Invariants
// - The caller holds the volume lock for the whole run (VolumeDir with lock), so that nobody else
//   writes this disk.
// - Nothing below the backing directory but `.salius/` changes before the decision is pinned.
// - It may be cut off at any instruction and run again, with any quorum (I7): until the decision
//   record is on disk another T may be chosen, afterwards never.
// - A failed sync ends the run with an error; the state stays open.
//
// Threads: one call runs on the calling thread; replicas are asked from threads of its own, all
// ended when it returns. Paper: salius.txt, "The Disk Recovery Procedure".
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "log/volume_config.h"

namespace salius {

namespace recovery {
class ReplayTarget;
class ReplicaConnector;
}  // namespace recovery

// The points at which a run can be cut off by the step hook: each stands right after something that
// outlives a crash was done (here or at a replica). Names: RecoveryStepName().
enum class RecoveryStep : int {
  kLocked = 0,        // the state was read, nothing done
  kSameLifeSynced,    // same life: syncfs done
  kSameLifeNoted,     // same life: the applied mark is noted as checkpoint
  kRunNoted,          // the run file (fence epoch, token) is on disk
  kFenced,            // once per replica that answered
  kCollected,         // once per replica whose records are here
  kMerged,            // T is chosen, nothing written
  kPinAppended,       // once per batch appended to the stable log
  kPinned,            // the decision record is on disk
  kReplayRebuilt,     // once per object rebuilt in .salius/tmp
  kReplayData,        // once per file whose records ran
  kReplayDisplaced,   // once per object moved out of the way
  kReplayHiddenLink,  // once per hidden link made
  kReplayAttached,    // once per name bound
  kReplayRemoved,     // once per name or dead directory removed
  kSynced,            // the file system is synced
  kCommitted,         // the state is clean
  kDropped,           // replicas were told to forget
};
inline constexpr int kRecoverySteps = static_cast<int>(RecoveryStep::kDropped) + 1;
std::string_view RecoveryStepName(RecoveryStep step);
std::optional<RecoveryStep> ParseRecoveryStep(std::string_view name);

struct RecoveryProgress {
  std::string_view phase;  // "fence", "collect", "pin", "locate", "replay", "sync"
  uint64_t done = 0;       // in `unit`
  uint64_t total = 0;      // 0: not known
  std::string_view unit;   // "replicas", "records", "bytes", "objects"
};

struct RecoveryReport;

struct RecoveryOptions {
  bool dry_run = false;  // say what would be done; change nothing, here or at a replica
  // Go on where too few members answer, records are missing, or a file is missing; the report says
  // what is unaccounted for.
  bool force = false;
  // T at most this, for good; what is already on disk beyond it stays there. Refused without force
  // when an acknowledged record would be dropped.
  std::optional<Seq> until;

  uint64_t rpc_timeout_ms = 5000;     // one answer to fence or inventory
  uint64_t fence_timeout_ms = 30000;  // replicas that cannot be reached are asked again till then
  uint64_t fence_grace_ms = 1000;     // how long to wait for the rest once there are enough
  uint64_t local_fence_timeout_ms = 2000;  // the same in mode local, where none is needed
  uint64_t fetch_timeout_ms = 60000;       // one fetch stream, plus 1 s for each 4 MiB it announced
  int fetch_attempts = 5;                  // streams per replica before it is given up
  uint64_t fetch_piece = 4096;  // records at least, of what several replicas are asked at once

  std::function<void(const RecoveryProgress&)> on_progress;  // called on the calling thread
  // For crash tests. An error returned here ends the run at once, as a crash would.
  std::function<absl::Status(RecoveryStep)> step_hook;
  // How to reach replicas; null: gRPC as configured. For tests.
  recovery::ReplicaConnector* connector = nullptr;
  // Where to replay; null: the backing file system. For tests.
  recovery::ReplayTarget* target = nullptr;
  // Asks one replica after the other, each once, on the calling thread. For simulation.
  bool one_thread = false;
  // When not null, filled with what was found out so far, also when the run fails.
  RecoveryReport* partial_report = nullptr;
};

enum class RecoveryOutcome {
  kUnknown,
  kClean,        // there was nothing to recover
  kRecovered,    // now clean
  kDryRun,       // could be recovered as the report says
  kNotEnough,    // too few members answered
  kDataLoss,     // what is there contradicts itself or is incomplete
  kFenced,       // another recovery, or a newer session, holds the replicas
  kBadRequest,   // `until` contradicts what is on the disk or was decided, or drops records
  kFailed,       // I/O and everything else
  kInterrupted,  // by the step hook
};
std::string_view RecoveryOutcomeName(RecoveryOutcome outcome);

// One replica as recovery saw it.
struct RecoveryReplica {
  std::string address;
  bool member = false;  // listed in the state
  bool answered = false;
  bool counted = false;  // towards the quorum
  uint64_t records = 0;  // of the epoch, that it said it holds
  uint64_t fetched = 0;  // of them, taken from it
  std::string detail;    // why it did not count, or what it said
};

struct RecoveryReport {
  RecoveryOutcome outcome = RecoveryOutcome::kUnknown;
  std::string volume;
  std::string mode;              // of the state found
  Epoch epoch = 0;               // that was recovered
  Epoch next_epoch = 0;          // noted by the commit
  bool same_life = false;        // only the process had died: the page cache was intact
  bool already_decided = false;  // an earlier run had pinned its decision
  Seq checkpoint = 0;            // records above it were replayed
  Seq decided = 0;               // T
  Seq durable_mark = 0;  // largest durable mark seen: everything up to it had been acknowledged
  Seq highest = 0;       // largest seq seen
  uint64_t quorum_needed = 0;
  uint64_t quorum_counted = 0;
  std::vector<RecoveryReplica> replicas;
  // Seqs in (checkpoint, max(durable_mark, highest)] that nobody has, as ranges; filled when there
  // are any, which only --force lets pass.
  std::vector<std::pair<Seq, Seq>> unaccounted;
  // First and last of the records that are there and that `until` leaves out; those up to
  // durable_mark had been acknowledged, later ones may have been.
  std::optional<std::pair<Seq, Seq>> dropped;
  uint64_t records = 0;  // decided
  uint64_t record_bytes = 0;
  uint64_t torn_bytes = 0;       // of the stable log's tail
  uint64_t files_changed = 0;    // files and directories whose records ran
  uint64_t bytes_written = 0;    // to files
  uint64_t records_skipped = 0;  // covered by "on disk up to", or of files gone at T
  uint64_t names_bound = 0;
  uint64_t names_removed = 0;
  uint64_t objects_rebuilt = 0;
  bool tree_scanned = false;
  bool ballast_used = false;
  bool ballast_restored = true;
  std::vector<std::string> lost_and_found;  // paths below .salius/lost/
  std::vector<std::string> missing;         // objects skipped by --force
  // Changes that the file system refuses, as it refused them to their callers (recovery/refusal.h).
  std::vector<std::string> refused;
  // What --force went past, a sentence each, and the records that the decision leaves out although
  // they were, or may have been, acknowledged (GivenUpText). Noted in .salius/recoveries.
  std::vector<std::string> overridden;
  std::string given_up;
  std::vector<std::string> plan;  // dry run: one line per file and name
  // How long each phase took, in milliseconds, in the order they ran.
  std::vector<std::pair<std::string, uint64_t>> phase_ms;
  uint64_t elapsed_ms = 0;
  std::string explanation;  // of a failure, for people
};

// Recovers the volume in `dir`, which must hold the lock, opening its state and stable log itself
// and closing them before it returns. A clean volume is OK at once.
//
// After OK (and not dry_run) the state is clean with an epoch larger than every session and
// recovery before; a session may start. Errors: UNAVAILABLE when too few members answer (names
// them), DATA_LOSS (says what and why), FAILED_PRECONDITION when another recovery holds the
// replicas, or `until` contradicts a pinned decision or would leave records out;
// INVALID_ARGUMENT for options; RESOURCE_EXHAUSTED when the disk or the stable log is full; others
// as the file system gives them. The outcome is also in options.partial_report.
absl::StatusOr<RecoveryReport> Recover(VolumeDir& dir, const RecoveryOptions& options);

// The report as lines for people, and as one JSON object (keys as the fields above).
std::string RecoveryReportText(const RecoveryReport& report);
std::string RecoveryReportJson(const RecoveryReport& report);

}  // namespace salius
