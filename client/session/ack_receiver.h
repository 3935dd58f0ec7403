// Waits for durability, and receives the acknowledgements meanwhile (client/session/waiters.h draws
// who receives).
//
// Threads: every method may be called from any thread.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "client/session/applier.h"
#include "client/session/record_stream.h"
#include "client/session/replica_links.h"
#include "client/session/shared_core.h"
#include "common/deadline.h"
#include "common/ids.h"
#include "common/spinner.h"

namespace salius {

class AckReceiver {
 public:
  // All outlive it.
  AckReceiver(SharedCore& shared, ReplicaLinks& links, Applier& applier)
      : shared_(shared),
        links_(links),
        applier_(applier),
        spinner_(shared.options.spin_ns, shared.clock) {}

  // As RecordStream's methods of these names.
  absl::Status WaitDurable(Seq seq);
  void WhenDurable(Seq seq, DurableCallback done);
  void NotifyDurable(Seq seq, DurableCallback done);
  absl::Status WaitAppliedFor(Seq seq, int64_t bound_ns);

  // How a thread waits for the first datagram.
  enum class Wait : uint8_t { kNo, kSleep, kLookThenSleep };
  // Receives the datagrams that have arrived and feeds the core. Waits for them as `wait` says, at
  // most until the channel's time-out.
  void ReceiveSome(Wait wait) ABSL_LOCKS_EXCLUDED(shared_.mu);

 private:
  // Has `done` called when `seq` is durable. `may_lead`: this thread may receive until then.
  void Register(Seq seq, DurableCallback done, bool may_lead) ABSL_LOCKS_EXCLUDED(shared_.mu);
  // Sends the gathered records if `seq` is one of them: a caller waits for it.
  void SendAwaited(Seq seq, SendWhen when) ABSL_LOCKS_EXCLUDED(shared_.mu);
  // Leads until `seq` is durable, or follows for a moment; no longer than until `end`. Returns the
  // error of a wait that has failed.
  absl::Status LeadOrFollow(Seq seq, Deadline end) ABSL_LOCKS_EXCLUDED(shared_.mu);
  bool TryLead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared_.mu);
  // Receives acknowledgements for all waiters while `wanted`, which is called under the core's lock,
  // returns true, and waits can succeed. Then wakes the thread that receives next.
  void Lead(Wait wait, absl::FunctionRef<bool()> wanted) ABSL_LOCKS_EXCLUDED(shared_.mu);
  // Returns how the leader waits now. It polls for acknowledgements when they are near and few
  // callers wait.
  Wait HowToWait() const ABSL_SHARED_LOCKS_REQUIRED(shared_.mu);

  SharedCore& shared_;
  ReplicaLinks& links_;
  Applier& applier_;
  Spinner spinner_;  // of the leader
};

}  // namespace salius
