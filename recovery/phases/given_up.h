// The note of this recovery in `.salius/recoveries`: the records that it gives up although they
// were, or may have been, acknowledged. `salius status` shows it until it is acknowledged.
//
// Threads: runs on the calling thread.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "common/ids.h"
#include "log/recovery_notes.h"
#include "recovery/agree/merge.h"
#include "recovery/phases/run.h"

namespace salius::recovery {

class GivenUp {
 public:
  // `run` is borrowed. `epoch` is the epoch that is recovered.
  GivenUp(Run& run, Epoch epoch) : run_(run), epoch_(epoch) {}

  // Keeps the records that the decision leaves out, and what --force overrode. `shortfall`: why too
  // few members count; "" if enough do.
  void Take(const MergeResult& merged, const std::string& shortfall);

  // Writes the note before the decision is pinned, so that no later crash hides the records given
  // up. Writes nothing if there are none.
  absl::Status NoteBeforePin();

  // Writes the note before the commit, with the objects that --force left out. After a recovery
  // that gave nothing up it only informs: then a failure is logged, and OK is returned.
  absl::Status NoteBeforeCommit();

 private:
  absl::Status Write();

  Run& run_;
  const Epoch epoch_;
  RecoveryNote note_;
};

}  // namespace salius::recovery
