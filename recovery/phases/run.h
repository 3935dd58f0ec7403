// One run of a recovery, as its phases see it: the volume's directory, the options, the report, and
// the clock and hooks that accompany every phase.
//
// Threads: used by the thread that called Recover().
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/ids.h"
#include "recovery/options.h"
#include "recovery/replay/replay.h"
#include "recovery/replay/replay_target.h"
#include "recovery/report.h"
#include "storage/volume_config.h"

namespace salius::recovery {

class Run {
 public:
  // The arguments are borrowed. `dir` holds the volume's lock.
  Run(VolumeDir& dir, const RecoveryOptions& options, Clock& clock, RecoveryReport* report);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  VolumeDir& dir() const { return dir_; }
  const RecoveryOptions& options() const { return options_; }
  Clock& clock() const { return clock_; }
  RecoveryReport& report() const { return report_; }
  // The environment of replay, whose step and progress are this run's.
  const ReplayContext& context() const { return context_; }
  ReplayTarget& target() const;

  // Ends the present phase and starts `phase`; "" starts none. The report has each phase's time.
  void Enter(std::string phase);
  // Calls the hook after an effect that outlives a crash. An error ends the run as a crash would.
  absl::Status Step(RecoveryStep step) const;
  void Progress(const RecoveryProgress& progress) const;

  // Ends the run with an error: writes outcome and explanation into the report. Returns the error
  // for the caller of Recover().
  absl::Status Fail(const absl::Status& error);

  // Notes that an earlier run decided for T = `last`.
  void TakeEarlierDecision(Seq last);

 private:
  VolumeDir& dir_;
  const RecoveryOptions& options_;
  Clock& clock_;
  RecoveryReport& report_;
  ReplayContext context_;
  std::string phase_;
  int64_t phase_began_ns_ = 0;
  std::optional<Seq> earlier_decision_;
};

}  // namespace salius::recovery
