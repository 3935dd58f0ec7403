// The health of a volume in one word and one exit code, for monitoring (docs/status-json.md,
// salius(8)).
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <string>
#include <string_view>

#include "client/cli/exit_code.h"
#include "log/recovery_notes.h"
#include "log/state_file.h"
#include "proto/control.pb.h"

namespace salius::cli {

// Ordered from good to bad: for several volumes the worst counts.
enum class HealthLevel {
  kHealthy,        // as configured: replicated with every replica, or local without any
  kBusy,           // it starts, recovers or drains
  kNotMounted,     // clean
  kDegraded,       // replicated, with fewer members than replicas, or one that gives nothing back
  kGivenUp,        // a recovery gave records up, and this was not acknowledged
  kLocal,          // replicas are configured, and none counts
  kNoPermission,   // only root may ask
  kHung,           // its process exists and does not answer
  kNeedsRecovery,  // its process has died
  kFailed,         // read-only
};

// Returns the name, such as "needs-recovery".
std::string_view HealthName(HealthLevel health);
ExitCode ExitCodeOf(HealthLevel health);

struct Verdict {
  HealthLevel health = HealthLevel::kHealthy;
  std::string why;  // a part of a sentence; empty when the name says enough
};
// Returns the verdict as text, such as "degraded: 2 of 3 replicas count".
std::string VerdictText(const Verdict& verdict);

Verdict JudgeMounted(const control::VolumeStatusResponse& status);

// Judges a volume whose daemon does not answer. `holder` is the process that holds its lock ("pid
// 12"), or empty when the lock is free. `stuck`: the holder is stopped, or it listens and does not
// answer.
Verdict JudgeUnmounted(const VolumeState& state, const RecoveryNotes& notes,
                       std::string_view holder, bool stuck);

// Returns the name of an error that takes the place of a status.
std::string_view ErrorName(ExitCode code);

}  // namespace salius::cli
