// The steps, progress and report of a recovery. Below both halves, recovery/agree and
// recovery/replay, which fill in the report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"

namespace salius {

// The points at which the step hook can cut off a run. Each comes right after an effect that
// outlives a crash (here or at a replica). Names: RecoveryStepName().
enum class RecoveryStep : int {
  kLocked = 0,        // the state was read, nothing was done
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
  kDropped,           // replicas were asked to drop the volume
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

enum class RecoveryOutcome {
  kUnknown,
  kClean,        // there was nothing to recover
  kRecovered,    // now clean
  kDryRun,       // could be recovered as the report says
  kNotEnough,    // too few members answered
  kDataLoss,     // the records or the disk contradict each other or are incomplete
  kFenced,       // another recovery, or a newer session, holds the replicas
  kBadRequest,   // the disk or the decision forbids `until`, or it drops records
  kFailed,       // I/O and everything else
  kInterrupted,  // by the step hook
};
std::string_view RecoveryOutcomeName(RecoveryOutcome outcome);
// Returns the section of docs/runbook.md for an outcome that asks for an operator's action; else "".
std::string RecoveryAdvice(RecoveryOutcome outcome);

// One replica as seen by recovery.
struct RecoveryReplica {
  std::string address;
  bool member = false;  // listed in the state
  bool answered = false;
  bool counted = false;  // towards the quorum
  uint64_t records = 0;  // of the epoch, that it says it holds
  uint64_t fetched = 0;  // number of those taken from it
  std::string detail;    // why it did not count, or its answer
};

struct RecoveryReport {
  RecoveryOutcome outcome = RecoveryOutcome::kUnknown;
  std::string volume;
  std::string mode;              // of the state found
  Epoch epoch = 0;               // the epoch that was recovered
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
  // Seqs in (checkpoint, max(durable_mark, highest)] that no one holds, as ranges. Filled when
  // there are any, which only --force lets pass.
  std::vector<std::pair<Seq, Seq>> unaccounted;
  // First and last of the present records that `until` leaves out. Those up to durable_mark had
  // been acknowledged, later ones may have been.
  std::optional<std::pair<Seq, Seq>> dropped;
  uint64_t records = 0;  // decided
  uint64_t record_bytes = 0;
  uint64_t torn_bytes = 0;       // of the stable log's tail
  uint64_t files_changed = 0;    // files and directories whose records ran
  uint64_t bytes_written = 0;    // to files
  uint64_t records_skipped = 0;  // covered by "on disk up to", or of files gone at T
  bool direct = false;           // a direct volume
  uint64_t files_gone = 0;       // of a direct volume: with records, and not found
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
  // The refusals that --force overrode, a sentence each.
  std::vector<std::string> overridden;
  // The records that the decision leaves out although they were, or may have been, acknowledged
  // (GivenUpText). Both are noted in .salius/recoveries.
  std::string given_up;
  std::vector<std::string> plan;  // dry run: one line per file and name
  // How long each phase took, in milliseconds, in the order they ran.
  std::vector<std::pair<std::string, uint64_t>> phase_ms;
  uint64_t elapsed_ms = 0;
  std::string explanation;  // of a failure, for the user
};

// Return the report as lines for the user, and as one JSON object (keys as the fields above).
std::string RecoveryReportText(const RecoveryReport& report);
std::string RecoveryReportJson(const RecoveryReport& report);

namespace recovery {

// Returns, for example, "5, 7-9, and 3 more ranges".
std::string RangesText(absl::Span<const std::pair<Seq, Seq>> ranges);

}  // namespace recovery
}  // namespace salius
