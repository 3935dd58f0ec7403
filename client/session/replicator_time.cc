// The replicator's timers: re-sends, probes, which replicas keep up, hedges and partitions, and the
// time of the next call. pure, as replicator.h says.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/session/replicator.h"

namespace salius {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

// A hedge earlier than this would put every scheduling hiccup on the disk.
constexpr int64_t kMinHedge = 5 * kMillisecond;
constexpr int64_t kIdleProbe = 1000 * kMillisecond;
constexpr int64_t kIdleTick = 100 * kMillisecond;
// One or two lost datagrams do not make a replica lost, however small delta is.
constexpr int64_t kMinSilence = 250 * kMillisecond;

}  // namespace

void Replicator::CheckReplica(int64_t now, int index) {
  Replica& replica = replicas_[index];
  if (KeepsUp(now, index)) {
    if (replica.keepup_since_ns < 0) replica.keepup_since_ns = now;
    replica.problem.clear();
  } else {
    replica.keepup_since_ns = -1;
  }
}

bool Replicator::KeepsUp(int64_t now, int index) const {
  const Replica& replica = replicas_[index];
  if (replica.link != Link::kOpen || replica.memory_full) return false;
  // A round trip on the slowest link allowed.
  const int64_t bound = 2 * options_.delta_ns;
  if (replica.waiting_ns >= 0 && now - replica.waiting_ns > bound) return false;
  const Seq missing = std::max(replica.contiguous, checkpoint()) + 1;
  return missing > gathering_.sendable() || now - window_.At(missing).sendable_ns < bound;
}

void Replicator::Tick(int64_t now) {
  if (!failure_.ok()) return;
  ticks_.Take(now, durable_);
  if (!options_.noticed) gathering_.ReleaseLate(now);
  const int64_t silence = std::max(10 * options_.delta_ns, kMinSilence);
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const int index = static_cast<int>(i);
    Replica& replica = replicas_[i];
    if (replica.link == Link::kClosed && now >= replica.open_after_ns) {
      replica.link = Link::kOpening;
      replica.base = issued() + 1;
      out_.opens.push_back({index, replica.base});
    }
    if (replica.link != Link::kOpen) continue;
    const Seq acked = std::max(replica.contiguous, checkpoint());
    const bool outstanding = acked < replica.sent;
    const bool silent = replica.waiting_ns >= 0 &&
                        now - std::max(replica.waiting_ns, ticks_.resumed_ns()) > silence;
    if (outstanding && now - replica.progress_ns > replica.rtt.timeout_ns()) {
      replica.rtt.BackOff();
      // A silent replica gets probes only; re-sends follow when it has answered one.
      if (!silent) ResendFirst(now, index);
      replica.progress_ns = now;
    }
    const int64_t quiet = now - replica.heard_ns;
    const int64_t probe_every = replica.waiting_ns >= 0 || replica.memory_full
                                    ? std::max(2 * options_.delta_ns, 50 * kMillisecond)
                                    : kIdleProbe;
    if (now - std::max(replica.heard_ns, replica.probe_ns) >= probe_every) {
      replica.probe_ns = now;
      if (replica.waiting_ns < 0) replica.waiting_ns = now;
      out_.probes |= ReplicaBit(index);
    }
    const bool counted = (configurations_.members() & ReplicaBit(index)) != 0;
    if (counted && silent) {
      Lose(now, index, absl::StrCat("silent for ", quiet / kMillisecond, " ms"), false);
    }
    CheckReplica(now, index);
    SendNew(now, index);
  }
  AdvanceDurable();
  if (counting_ && durable_ < gathering_.sendable() &&
      !configurations_.Recoverable(durable_ + 1)) {
    const int64_t waiting = now - AwaitedSince(durable_ + 1);
    if (waiting > PartitionTimeout()) {
      BeginLocal(now,
                 absl::StrCat("partitioned: seq ", durable_ + 1, " has fewer than ", options_.acks,
                              " acknowledgements after ", waiting / kMillisecond, " ms"));
    } else if (waiting > HedgeDelay()) {
      stable_.WantAll();
    }
  }
  Plan(now);
  ticks_.Expect(NextTick(now));
}

int64_t Replicator::AwaitedSince(Seq seq) const {
  return std::max(window_.At(seq).sendable_ns, ticks_.resumed_ns());
}

int64_t Replicator::PartitionTimeout() const {
  int64_t base = 0;
  const ReplicaMask members = configurations_.members();
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (members & ReplicaBit(i)) base = std::max(base, replicas_[i].rtt.base_ns());
  }
  // Adaptive, but never above the paper's 2*delta (§4.1), and never so short that one late
  // scheduling slice on a healthy network looks like a partition.
  return std::clamp(16 * base, options_.delta_ns, 2 * options_.delta_ns);
}

int64_t Replicator::HedgeDelay() const {
  const int64_t floor = std::min(kMinHedge, options_.delta_ns);
  return std::clamp(PartitionTimeout() / 4, floor, options_.delta_ns);
}

int64_t Replicator::NextTick(int64_t now) const {
  if (!failure_.ok()) return std::numeric_limits<int64_t>::max();
  int64_t next = now + kIdleTick;
  for (const Replica& replica : replicas_) {
    if (replica.link == Link::kClosed) next = std::min(next, replica.open_after_ns);
    if (replica.link != Link::kOpen) continue;
    if (std::max(replica.contiguous, checkpoint()) < replica.sent) {
      next = std::min(next, replica.progress_ns + replica.rtt.timeout_ns());
    }
  }
  if (counting_ && durable_ < gathering_.sendable()) {
    const int64_t since = AwaitedSince(durable_ + 1);
    const int64_t hedge = since + HedgeDelay();
    const bool hedges = !options_.noticed && now < hedge && stable_.upto() <= durable_;
    const int64_t due = hedges ? hedge : since + PartitionTimeout();
    if (due >= now) next = std::min(next, due);
  }
  if (!options_.noticed) next = std::min(next, gathering_.late_ns());
  return std::max(next, now + kMillisecond / 2);
}

}  // namespace salius
