// A pipeline for tests of the volume, linked in place of the real one: no threads, no network, no
// disk. A record is durable when somebody waits for it, and applied by whoever waits; `hold` keeps
// applied behind, so that tests decide when patches disappear.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/engine/pipeline.h"

namespace salius {

class FakeControl {
 public:
  virtual ~FakeControl() = default;

  // Everything issued, in order; (op, seq) are what tests look at.
  std::vector<RecordRef> Issued();
  std::vector<RecordRef> Issued(Op op);
  // Applies the next `count` records.
  void ApplySome(size_t count);
  // From now on every call returns the error.
  void Fail(const absl::Status& status);

  absl::Mutex mu;  // guards what follows
  std::vector<RecordRef> records;
  Seq durable = 0, applied = 0, checkpoint = 0;
  absl::Status failure;
  bool apply_at_once = false;  // a record is applied before Issue returns, as by a faster thread
  bool disk_hangs = false;     // WaitAppliedFor gives up at once
  int applies = 0;             // calls of ApplySink::Apply that succeeded
  // Called (without mu) before a record is applied, one by one then.
  std::function<void(const RecordRef&)> before_apply;
  // Called (without mu) when somebody issues, before the record has its seq.
  std::function<void(Op)> before_issue;
  // Called (without mu) when somebody waits for durability.
  std::function<void(Seq)> on_wait_durable;
  int syncs = 0;

 protected:
  virtual absl::Status ApplyTo(Seq seq) = 0;
};

// The fake inside a pipeline of this kind.
FakeControl& FakeOf(Pipeline& pipeline);

}  // namespace salius
