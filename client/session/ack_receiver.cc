#include "client/session/ack_receiver.h"

#include <utility>
#include <vector>

#include "common/check.h"
#include "common/limits.h"
#include "common/strings.h"
#include "proto/frame.h"
#include "transport/datagram_channel.h"

namespace salius {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr size_t kBatch = 16;
constexpr int kMostRounds = 64;  // a flood must not stop time
constexpr size_t kAckBufferBytes = kFrameHeaderBytes + kMaxAckBytes + 64;
// How much earlier than it is due time may pass for the core.
constexpr int64_t kEarlyNs = 1 * kMs;
// The longest sleep of a follower. It only matters when a leader leaves and no thread follows it.
constexpr int64_t kFollowNs = 1 * kMs;

struct Buffers {
  InBatch batch{kBatch, kAckBufferBytes};
  std::vector<AckDatagram> datagrams;
};
Buffers& ThreadBuffers() {
  thread_local Buffers buffers;
  return buffers;
}

}  // namespace

absl::Status AckReceiver::WaitDurable(Seq seq) {
  SendAwaited(seq, SendWhen::kNow);
  while (shared_.mirror.durable.load(std::memory_order_acquire) < seq) {
    SALIUS_RETURN_IF_ERROR(LeadOrFollow(seq, Deadline::Never()));
  }
  return absl::OkStatus();
}

void AckReceiver::WhenDurable(Seq seq, DurableCallback done) {
  Register(seq, std::move(done), /*may_lead=*/true);
}

void AckReceiver::NotifyDurable(Seq seq, DurableCallback done) {
  Register(seq, std::move(done), /*may_lead=*/false);
}

void AckReceiver::Register(Seq seq, DurableCallback done, bool may_lead) {
  SendAwaited(seq, SendWhen::kSoon);
  absl::Status outcome;
  if (shared_.mirror.durable.load(std::memory_order_acquire) < seq) {
    absl::ReleasableMutexLock lock(&shared_.mu);
    const bool durable = shared_.core.policy().durable() >= seq;
    if (!durable) outcome = shared_.Waitable(seq);
    if (!durable && outcome.ok()) {
      Waiters& waiters = shared_.core.waiters();
      waiters.Add(seq, std::move(done));
      if (!may_lead) {
        const bool led = waiters.HasLeader();
        lock.Release();
        if (!led) shared_.WakeIo();  // it receives for the callbacks, as after a leader
        return;
      }
      if (!TryLead()) return;
      const Wait wait = HowToWait();
      lock.Release();
      Lead(wait, [&waiters] { return waiters.HasCallbacks(); });
      // A waiter with a callback has no thread here that applies its record.
      const SharedCore::Mirror& mirror = shared_.mirror;
      if (mirror.durable.load() >= applier_.taken() + SessionCore::kApplyAtLeast) {
        applier_.ApplySome(SessionCore::kApplyBurst);
      }
      return;
    }
  }
  std::move(done)(outcome);
}

absl::Status AckReceiver::WaitAppliedFor(Seq seq, int64_t bound_ns) {
  const Deadline end = Deadline::After(shared_.clock, bound_ns);
  SendAwaited(seq, SendWhen::kNow);
  while (shared_.mirror.applied.load(std::memory_order_acquire) < seq) {
    applier_.Hurry(seq);
    {
      absl::MutexLock lock(&shared_.mu);
      const Replicator& policy = shared_.core.policy();
      if (policy.applied() >= seq) break;
      SALIUS_RETURN_IF_ERROR(shared_.Waitable(seq));
      const int64_t now = shared_.clock.MonotonicNanos();
      if (end.ExpiredAt(now) || applier_.Hangs(now, bound_ns)) {
        return absl::DeadlineExceededError("the disk is slow");
      }
      if (policy.durable() >= seq) {
        shared_.applier_cv.Signal();
        ++shared_.applied_waiters;
        shared_.applied_cv.WaitFor(&shared_.mu, end.RemainingNs(shared_.clock));
        --shared_.applied_waiters;
        continue;
      }
    }
    SALIUS_RETURN_IF_ERROR(LeadOrFollow(seq, end));
  }
  return absl::OkStatus();
}

void AckReceiver::SendAwaited(Seq seq, SendWhen when) {
  if (shared_.mirror.sendable.load(std::memory_order_acquire) >= seq) return;
  shared_.Feed(input::Awaited{seq, when});
}

absl::Status AckReceiver::LeadOrFollow(Seq seq, Deadline end) {
  Wait wait = Wait::kNo;
  bool wake_io = false;
  {
    absl::MutexLock lock(&shared_.mu);
    const Replicator& policy = shared_.core.policy();
    if (policy.durable() >= seq) return absl::OkStatus();
    SALIUS_RETURN_IF_ERROR(shared_.Waitable(seq));
    if (TryLead()) {
      wait = HowToWait();
    } else {
      Waiters& waiters = shared_.core.waiters();
      waiters.StartFollowing();
      shared_.durable_cv.WaitFor(&shared_.mu, kFollowNs);
      const bool leaves = policy.durable() >= seq || end.Expired(shared_.clock);
      wake_io = waiters.StopFollowing(leaves) == Waiters::Successor::kIoThread;
    }
  }
  if (wait != Wait::kNo) {
    Lead(wait, [&] {
      shared_.mu.AssertHeld();
      return shared_.core.policy().durable() < seq && !end.Expired(shared_.clock);
    });
  }
  if (wake_io) shared_.WakeIo();
  return absl::OkStatus();
}

bool AckReceiver::TryLead() {
  Waiters& waiters = shared_.core.waiters();
  const bool leads = waiters.TryLead(shared_.core.policy().counting_acks());
  shared_.mirror.many_wait.store(waiters.Many(), std::memory_order_relaxed);
  return leads;
}

AckReceiver::Wait AckReceiver::HowToWait() const {
  const int64_t spin_ns = shared_.options.spin_ns;
  if (spin_ns == 0 || shared_.mirror.many_wait.load(std::memory_order_relaxed)) {
    return Wait::kSleep;
  }
  // Measured round trips contain wake-ups that looking spares.
  return shared_.core.policy().AnswersNs() <= 2 * spin_ns ? Wait::kLookThenSleep : Wait::kSleep;
}

void AckReceiver::Lead(Wait wait, absl::FunctionRef<bool()> wanted) {
  Waiters::Successor next = Waiters::Successor::kNone;
  while (true) {
    ReceiveSome(wait);
    absl::MutexLock lock(&shared_.mu);
    const Replicator& policy = shared_.core.policy();
    if (!wanted() || !policy.counting_acks() || !shared_.core.Waitable().ok()) {
      next = shared_.core.waiters().StopLeading();
      if (next == Waiters::Successor::kFollower) shared_.durable_cv.Signal();
      break;
    }
    // This thread does not apply: that may wait for the disk, and no other thread receives.
    if (applier_.taken() + SessionCore::kApplyBurst < policy.durable()) {
      shared_.applier_cv.Signal();
    }
    wait = HowToWait();
  }
  if (next == Waiters::Successor::kIoThread) shared_.WakeIo();
}

// Lets time pass for the core only when no datagram is left to read: unread acknowledgements are
// not late. The core then gets the time at which the last look for datagrams began.
void AckReceiver::ReceiveSome(Wait wait) {
  DatagramChannel& channel = *links_.channel();
  Clock& clock = shared_.clock;
  auto& [batch, datagrams] = ThreadBuffers();
  absl::StatusOr<size_t> got = size_t{0};
  if (wait == Wait::kLookThenSleep) {
    spinner_.Spin([&, &batch = batch] {
      got = channel.Receive(batch, /*wait=*/false);
      return !got.ok() || *got > 0;
    });
  }
  int64_t looked = clock.MonotonicNanos();
  if (got.ok() && *got == 0) got = channel.Receive(batch, wait != Wait::kNo);
  for (int round = 1;; ++round) {
    if (wait != Wait::kNo && round == 1 && got.ok() && *got == 0) {
      looked = clock.MonotonicNanos();  // the first receive may have waited for long
      got = channel.Receive(batch, /*wait=*/false);
    }
    const size_t count = got.ok() ? *got : 0;
    bool more = false;
    {
      SharedCore::Turn turn(shared_);
      const int64_t now = clock.MonotonicNanos();
      datagrams.clear();
      for (size_t i = 0; i < count; ++i) {
        datagrams.push_back({batch[i].bytes, links_.SenderOf(batch[i]), batch[i].truncated});
      }
      if (count > 0) turn.Feed(now, input::Received{datagrams});
      const Replicator& policy = shared_.core.policy();
      const bool due =
          count == 0 || now >= policy.NextTick(now - kEarlyNs) || now >= policy.tick_due();
      more = due && count > 0 && round < kMostRounds;
      if (due && !more) turn.Feed(count == 0 ? looked : now, input::TimePassed{});
    }
    if (!more) return;
    looked = clock.MonotonicNanos();
    got = channel.Receive(batch, /*wait=*/false);
  }
}

}  // namespace salius
