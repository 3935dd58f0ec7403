// How a volume is, in one word and one exit code: for monitoring (docs/status-json.md,
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

// From good to bad: of several volumes the worst counts.
enum class Health {
  kHealthy,        // as configured: replicated with every replica, or local without any
  kBusy,           // it starts, recovers or drains
  kNotMounted,     // clean
  kDegraded,       // replicated, with fewer members than replicas, or one that gives nothing back
  kGivenUp,        // a recovery gave records up, and this was not acknowledged
  kLocal,          // replicas are configured, and none counts
  kNoPermission,   // only root may ask
  kHung,           // its process is there and does not answer
  kNeedsRecovery,  // its process has died
  kFailed,         // read-only
};

// "needs-recovery" and the like.
std::string_view HealthName(Health health);
ExitCode ExitCodeOf(Health health);

struct Verdict {
  Health health = Health::kHealthy;
  std::string why;  // a part of a sentence; empty: the word says it
};
// "degraded: 2 of 3 replicas count".
std::string VerdictText(const Verdict& verdict);

Verdict JudgeMounted(const control::VolumeStatusResponse& status);

// Of a volume whose daemon does not answer. `holder` holds its lock ("pid 12"; empty: nobody does);
// `stuck`: it is stopped, or it listens and does not answer.
Verdict JudgeUnmounted(const VolumeState& state, const RecoveryNotes& notes,
                       std::string_view holder, bool stuck);

// The word for an error in place of a status.
std::string_view ErrorName(ExitCode code);

}  // namespace salius::cli
