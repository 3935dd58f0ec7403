#include "client/session/replicator.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/limits.h"
#include "log/record.h"

namespace salius {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

// Bytes issued and not yet durable before issuers block.
constexpr uint64_t kWindowBytes = 8u << 20;
constexpr uint64_t kMinWindowBytes = 512u << 10;
// The most slots of a window, 32 MiB: a session with many small records makes a checkpoint when half
// of them are used.
constexpr uint64_t kMostSlots = 1u << 20;
// Shortest re-send time-out: below this a busy host's scheduling looks like loss.
constexpr int64_t kMinTimeout = 2 * kMillisecond;

constexpr char kWhenFenced[] =
    "this primary may no longer write. The volume is used from another copy of its directory: unmount this one and go "
    "on there; or, to go on here, end the other, unmount, and run \"salius-recover --force\" on this backing directory, "
    "which gives up what only the other has";

constexpr char kForgot[] =
    "a recovery may have fenced it, so it counts only when as many members as must hold a record "
    "remember that none did. If those are gone for good: unmount, then mount again";

}  // namespace

uint32_t Replicator::WindowSlots(uint64_t log_max_bytes) {
  const uint64_t most = std::min(log_max_bytes / kRecordHeaderBytes, kMostSlots - 2);
  return static_cast<uint32_t>(std::bit_ceil(most + 2));
}

Replicator::Replicator(const ReplicatorOptions& options, Window& window, int64_t now)
    : options_(options),
      window_(window),
      configurations_(window, options.acks),
      promises_(configurations_, options.acks),
      gathering_(window, options.few,
                 options.output_triggered ? OutputTriggered(options.log_max_bytes, options.tau_ns)
                                          : GatherBounds()),
      stable_(window),
      ticks_(now, options.delta_ns),
      spells_(2 * options.delta_ns, kMostSpells) {
  SALIUS_CHECK(options.replicas >= 0 && options.replicas <= static_cast<int>(kMaxReplicas));
  SALIUS_CHECK(options.acks >= 1);
  SALIUS_CHECK(options.delta_ns > 0 && options.tau_ns > 0 && options.k >= 1);
  const int64_t delta = options_.delta_ns;
  const int64_t floor = std::min(kMinTimeout, delta / 4);
  const RttEstimator estimator(floor, std::max(delta / 2, floor), std::max(delta / 4, floor));
  replicas_.assign(options.replicas, Replica(estimator, delta));
  for (Replica& replica : replicas_) replica.open_after_ns = now;
}

uint64_t Replicator::uncheckpointed_bytes() const { return window_.bytes(); }

int64_t Replicator::oldest_uncheckpointed_ns(int64_t now) const {
  return window_.empty() ? 0 : now - window_.At(window_.checkpoint() + 1).issued_ns;
}

bool Replicator::CanIssue(int64_t now, uint64_t ring_bytes) const {
  if (uncheckpointed_bytes() + ring_bytes > options_.log_max_bytes || window_.full()) return false;
  // I6: the primary's own deadline. Nothing new while an old record still waits for the disk.
  if (oldest_uncheckpointed_ns(now) > options_.k * options_.tau_ns - 2 * options_.delta_ns) {
    return false;
  }
  uint64_t window = kWindowBytes;
  if (counting_) {
    const ReplicaMask members = configurations_.members();
    for (size_t i = 0; i < replicas_.size(); ++i) {
      if (members & ReplicaBit(i)) window = std::min(window, replicas_[i].free_bytes);
    }
    window = std::max(window, kMinWindowBytes);
  }
  const uint64_t in_flight = window_.BytesUpTo(issued()) - window_.BytesUpTo(durable_);
  return in_flight == 0 || in_flight + ring_bytes <= window;
}

Seq Replicator::Issue(int64_t now, uint64_t ring_bytes, SendWhen when) {
  window_.Add(ring_bytes, now);
  gathering_.Issued(now, durable_);
  if (!counting_) stable_.WantAll();
  Send(now, options_.output_triggered ? SendWhen::kLater : when);
  return issued();
}

void Replicator::OnAck(int64_t now, int index, int64_t rtt_ns, const AckPayload& ack) {
  if (!failure_.ok() || index < 0 || index >= static_cast<int>(replicas_.size())) return;
  Replica& replica = replicas_[index];
  if (ack.flags & kAckFenced) {
    Fail(absl::FailedPreconditionError(
        absl::StrCat("fenced: a recovery with epoch ", ack.promise_epoch,
                     " has begun; ", kWhenFenced)));
    return;
  }
  if (replica.link != Link::kOpen) return;
  const int64_t sent = rtt_ns < 0 ? -1 : now - rtt_ns;
  const Incarnation incarnation = configurations_.incarnation(index);
  if (ack.incarnation == incarnation && sent < replica.counts_from_ns) return;
  // I5: an ack counts only for the life of the memory that the session was opened with.
  if (ack.incarnation != incarnation || (ack.flags & kAckUnknownSession)) {
    Lose(now, index, "lost its memory (new incarnation or unknown session)", true);
    Plan(now);
    return;
  }
  if (ack.contiguous > issued() || (!ack.ranges.empty() && ack.ranges.back().last > issued())) {
    Problem(index, "acknowledges records that were never issued");
    return;
  }
  // I5: nor does it count for a memory that went back under the same incarnation.
  if (const std::string lost = replica.heard.Take(now, sent, ack); !lost.empty()) {
    Lose(now, index, absl::StrCat("its memory went back: ", lost), true);
    Plan(now);
    return;
  }
  replica.heard_ns = now;
  replica.waiting_ns = -1;
  replica.heard_since_open = true;
  replica.open_failures = 0;
  replica.rtt.Sample(rtt_ns);
  promises_.Answered(index, sent);
  if (promises_.in_doubt() != 0) {
    const ReplicaMask ended = promises_.EndDoubts();
    for (int i = 0; ended >> i != 0; ++i) {
      if (ended & ReplicaBit(i)) {
        Event(Level::kInfo, "may count again: no recovery had fenced it", i);
      }
    }
  }
  replica.free_bytes = ack.free_bytes;
  if (ack.flags & kAckMemoryFull) {
    if (!replica.memory_full) Lose(now, index, "out of memory", false);
    replica.memory_full = true;
    checkpoint_requested_ = true;  // a trim is what frees its memory
  } else if (replica.memory_full && ack.free_bytes > kMinWindowBytes) {
    replica.memory_full = false;
    replica.problem.clear();
  }
  bool grew = false;
  if (ack.contiguous > replica.contiguous && ack.contiguous >= replica.base) {
    window_.Hold(std::max(replica.contiguous + 1, replica.base), ack.contiguous, ReplicaBit(index));
    replica.contiguous = ack.contiguous;
    grew = true;
  }
  for (const SeqRange& range : ack.ranges) {
    window_.Hold(std::max(range.first, replica.base), range.last, ReplicaBit(index));
  }
  // A session that the replica has from earlier begins below this one's base: records that it lacks
  // there are not awaited.
  if (!ack.ranges.empty() && ack.contiguous < replica.base - 1) {
    while (replica.contiguous < issued() &&
           (replica.contiguous < checkpoint() ||
            (window_.At(replica.contiguous + 1).held & ReplicaBit(index)) != 0)) {
      ++replica.contiguous;
      grew = true;
    }
  }
  replica.sent = std::max(replica.sent, replica.contiguous);
  if (grew) replica.progress_ns = now;
  ResendLost(now, index, sent, ack, grew);
  SendNew(now, index);
  CheckReplica(now, index);
  AdvanceDurable();
  Plan(now);
}

void Replicator::OnOpened(int64_t now, int index, Incarnation incarnation, StoreId store, Seq base,
                          uint64_t free_bytes) {
  Replica& replica = replicas_[index];
  if (replica.link != Link::kOpening || !failure_.ok()) return;
  if (promises_.Opened(now, index, store)) {
    Event(Level::kWarning,
          absl::StrCat("came back without its memory and its promises: ", kForgot), index);
  }
  replica.link = Link::kOpen;
  configurations_.SetIncarnation(index, incarnation);
  replica.counts_from_ns = std::exchange(replica.life, incarnation) == incarnation ? now : kAnyTime;
  replica.heard.Reset();
  replica.base = base;
  replica.contiguous = base - 1;
  replica.sent = base - 1;
  replica.heard_ns = replica.progress_ns = replica.probe_ns = now;
  replica.waiting_ns = now;
  replica.keepup_since_ns = -1;
  replica.free_bytes = free_bytes;
  replica.heard_since_open = false;
  replica.memory_full = false;
  replica.problem.clear();
  replica.rtt.ResetBackOff();
  out_.probes |= ReplicaBit(index);
  replica.logged_problem.clear();
  Event(Level::kInfo, absl::StrFormat("opened: incarnation %016x, base %u", incarnation, base),
        index);
  SendNew(now, index);
  CheckReplica(now, index);
  Plan(now);
}

void Replicator::OnOpenFailed(int64_t now, int index, const std::string& why, bool fenced) {
  Replica& replica = replicas_[index];
  if (fenced) {
    Fail(absl::FailedPreconditionError(
        absl::StrCat("fenced: a recovery or a newer session owns this volume (", why,
                     "); ", kWhenFenced)));
    return;
  }
  if (replica.link != Link::kOpening) return;
  replica.link = Link::kClosed;
  Problem(index, why);
  BackOffOpening(now, replica);
}

void Replicator::Problem(int index, const std::string& why) {
  Replica& replica = replicas_[index];
  replica.problem = why;
  // Times and sizes in the reason differ from one attempt to the next.
  std::string reason;
  std::copy_if(why.begin(), why.end(), std::back_inserter(reason),
               [](char c) { return c < '0' || c > '9'; });
  if (std::exchange(replica.logged_problem, reason) == reason) return;
  Event(Level::kWarning, absl::StrCat("of no use now: ", why), index);
}

void Replicator::OnAddressTaken(int64_t now, int index) {
  if (replicas_[index].link != Link::kOpen || !failure_.ok()) return;
  Lose(now, index, "another replica has its address", true);
  Plan(now);
}

void Replicator::BackOffOpening(int64_t now, Replica& replica) {
  const int shift = std::min(replica.open_failures++, 5);
  replica.open_after_ns = now + ((100 * kMillisecond) << shift);
}

// Stops counting a replica's copies. `memory_lost`: its records are gone, so it needs a new
// session.
void Replicator::Lose(int64_t now, int index, const std::string& why, bool memory_lost) {
  Replica& replica = replicas_[index];
  const bool counted = (configurations_.all_members() & ReplicaBit(index)) != 0;
  configurations_.CountLoss(index);
  const int64_t well_since = std::exchange(replica.well_since_ns, -1);
  replica.setbacks.Add(well_since < 0 ? 0 : now - well_since);
  replica.keepup_since_ns = -1;
  replica.problem = why;
  if (memory_lost) {
    window_.Forget(ReplicaBit(index));
    replica.link = Link::kClosed;
    configurations_.SetIncarnation(index, 0);
    replica.open_after_ns = now;
    // No good answer came since it was opened: another host may answer at its address.
    if (!replica.heard_since_open) BackOffOpening(now, replica);
  }
  Event(Level::kWarning, absl::StrCat(counted ? "member lost: " : "lost: ", why), index);
  if (counted) {
    // docs/protocol.md, "Notes": secure the records that relied on its copies by the stable log or
    // a checkpoint, whichever is quicker.
    stable_.WantAll();
    checkpoint_requested_ = true;
  }
}

void Replicator::AdvanceDurable() {
  const Seq durable = configurations_.Advance(durable_, counting_);
  if (durable == durable_) return;
  durable_ = durable;
  out_.durable_advanced = true;
  out_.window_opened = true;
}

std::vector<Seq> Replicator::TakeStableBatch(uint64_t max_bytes) {
  return failure_.ok() ? stable_.Take(max_bytes) : std::vector<Seq>();
}

void Replicator::OnStable(int64_t now, const std::vector<Seq>& seqs, const absl::Status& status) {
  if (!failure_.ok()) return;
  if (!status.ok() && !absl::IsResourceExhausted(status)) {
    Fail(absl::Status(status.code(), absl::StrCat("stable log: ", status.message())));
    return;
  }
  if (status.ok()) {
    stable_.Appended(seqs);
  } else if (stable_.NoRoom(seqs)) {
    checkpoint_requested_ = true;
  }
  AdvanceDurable();
  Plan(now);
}

void Replicator::OnApplied(Seq applied) {
  SALIUS_CHECK(applied <= durable_);
  applied_ = std::max(applied_, applied);
}

void Replicator::OnSynced(int64_t now, Seq applied_before, const absl::Status& status) {
  sync_in_flight_ = false;
  if (!failure_.ok()) return;
  if (!status.ok()) {
    Fail(absl::Status(status.code(), absl::StrCat("the backing file system could not be synced: ",
                                                  status.message(),
                                                  ". The volume is read-only and keeps its log")));
    return;
  }
  synced_ = std::max(synced_, applied_before);
  syncs_done_ = syncs_begun_;
  NoteClean();
  Plan(now);
}

Replicator::Outputs Replicator::TakeOutputs() {
  out_.stable_wanted = stable_.wanted() && failure_.ok() && !options_.noticed;
  Outputs out = std::move(out_);
  out_ = Outputs();
  return out;
}

ReplicaMask Replicator::connected() const {
  ReplicaMask mask = 0;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i].link == Link::kOpen) mask |= ReplicaBit(i);
  }
  return mask;
}

ReplicaMask Replicator::targets() const {
  ReplicaMask mask = connected();
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i].memory_full) mask &= static_cast<ReplicaMask>(~ReplicaBit(i));
  }
  return mask;
}

Replicator::ReplicaView Replicator::replica(int index, int64_t now) const {
  const Replica& replica = replicas_[index];
  ReplicaView view;
  view.member = (configurations_.members() & ReplicaBit(index)) != 0;
  view.connected = replica.link == Link::kOpen &&
                   (replica.waiting_ns < 0 || now - replica.waiting_ns < 10 * options_.delta_ns);
  view.incarnation = configurations_.incarnation(index);
  view.base = replica.base;
  view.contiguous = replica.contiguous;
  view.lag_bytes = replica.link == Link::kOpen
                       ? window_.BytesUpTo(issued()) -
                             window_.BytesUpTo(std::max(replica.contiguous, checkpoint()))
                       : 0;
  view.free_bytes = replica.free_bytes;
  view.resent = replica.resent;
  view.srtt_ns = replica.rtt.srtt_ns();
  view.problem = replica.problem;
  if (const int same = SameMemoryAs(index); replica.link == Link::kOpen && same >= 0) {
    view.same_as = same;
    view.problem = absl::StrCat("it is replica ", same, " under another address, and counts once");
  }
  if (promises_.in_doubt() & ReplicaBit(index)) {
    view.problem = absl::StrCat("it came back without its memory and its promises: ", kForgot);
  }
  if (replica.link == Link::kOpen && !view.connected) {
    view.problem = absl::StrCat("silent for ", (now - replica.heard_ns) / kMillisecond, " ms");
  }
  return view;
}

void Replicator::Fail(const absl::Status& status) {
  if (!failure_.ok()) return;
  // A disk may fail with ETIMEDOUT, but callers take DEADLINE_EXCEEDED for one that is slow.
  failure_ = absl::IsDeadlineExceeded(status) ? absl::UnknownError(status.message()) : status;
  counting_ = false;
  out_.failed = true;
  out_.window_opened = true;
  out_.durable_advanced = true;
  Event(Level::kError, absl::StrCat("volume failed: ", status.message()));
}

}  // namespace salius
