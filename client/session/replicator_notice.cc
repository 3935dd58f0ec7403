// The replicator of a session whose records are issued, sent and acknowledged by other processes,
// without a stable log (ReplicatorOptions::noticed). pure, as replicator.h says.
#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/session/replicator.h"
#include "common/check.h"

namespace salius {
namespace {

// How long sync calls may wait because a process keeps a stripe lock: a stopped one delays the way
// back to mode replicated, not the callers.
constexpr int64_t kMostStampingNs = 1'000'000'000;

}  // namespace

void Replicator::NoticeSent(int64_t now, Seq upto) {
  const Seq before = sendable();
  upto = std::min(upto, issued());
  if (upto <= before || !failure_.ok()) return;
  gathering_.Sent(now, upto);
  const ReplicaMask sent_to = targets();
  for (size_t i = 0; i < replicas_.size(); ++i) {
    Replica& replica = replicas_[i];
    if (!(sent_to & ReplicaBit(i)) || upto < replica.base) continue;
    replica.sent = std::max({replica.sent, checkpoint(), replica.base - 1});
    // Otherwise it lacks earlier records, which SendNew sends it with these.
    if (replica.sent < std::max(before, replica.base - 1)) continue;
    if (replica.sent <= std::max(replica.contiguous, checkpoint())) replica.progress_ns = now;
    if (replica.waiting_ns < 0) replica.waiting_ns = now;
    replica.sent = std::max(replica.sent, upto);
  }
}

void Replicator::NoticeDurable(Seq durable) {
  SALIUS_CHECK(durable <= issued());
  if (durable <= durable_) return;
  durable_ = durable;
  out_.durable_advanced = true;
}

void Replicator::OnWentBack(int64_t now, int index) {
  if (replicas_[index].link != Link::kOpen || !failure_.ok()) return;
  Lose(now, index, "its memory went back", true);
  Plan(now);
}

StampPhase Replicator::phase() const {
  if (!failure_.ok()) return StampPhase::kFailed;
  if (going_local_) return StampPhase::kGoingLocal;
  if (counting_) return StampPhase::kReplicated;
  return heal_ == Heal::kStripes || heal_ == Heal::kSync ? StampPhase::kStamping
                                                         : StampPhase::kLocal;
}

void Replicator::RequestSync(int64_t now) {
  sync_requested_ = true;
  Plan(now);
}

// Until the note with the checkpoint of a sync has returned, a recovery would replay records that
// were issued before the sync over bytes that are in no record (I3).
void Replicator::NoteClean() {
  if (synced_ <= checkpoint()) clean_sync_ = syncs_done_;
}

void Replicator::OnStripesPassed(int64_t now) {
  if (heal_ != Heal::kStripes || !failure_.ok()) return;
  heal_ = Heal::kSync;
  AwaitSync();
  Plan(now);
}

// Wants a sync that begins after this.
void Replicator::AwaitSync() {
  awaited_sync_ = syncs_begun_ + 1;
  sync_requested_ = true;
}

void Replicator::AbandonHealing(int64_t now, const char* why) {
  if (std::exchange(heal_, Heal::kNone) == Heal::kFirstSync) return;
  spells_.Add(0);
  heal_after_ns_ = now + spells_.pause_ns();
  Event(Level::kWarning, absl::StrCat("not back to mode replicated yet: ", why));
}

void Replicator::PlanHealing(int64_t now) {
  bool base_too_new = false;
  const ReplicaMask candidates = now >= heal_after_ns_ ? Candidates(now, &base_too_new) : 0;
  if (std::popcount(candidates) >= options_.acks) {
    StepHealing(now, candidates);
  } else {
    if (heal_ != Heal::kNone) AbandonHealing(now, "too few replicas keep up");
    checkpoint_requested_ |= base_too_new;
  }
  if (configurations_.pending()) return;
  if (synced_ > checkpoint() || note_requested_) StartNote(MakeConfig(Mode::kLocal, 0));
}

// The first sync is for speed: the one while callers wait has less to write. That one covers what
// was written before stamping began, because every such write has given its stripe lock back.
void Replicator::StepHealing(int64_t now, ReplicaMask candidates) {
  switch (heal_) {
    case Heal::kNone:
      heal_ = Heal::kFirstSync;
      AwaitSync();
      break;
    case Heal::kFirstSync:
      if (syncs_done_ < awaited_sync_) break;
      heal_ = Heal::kStripes;
      stamping_since_ns_ = now;
      out_.pass_stripes = true;
      break;
    case Heal::kStripes:
      if (now - stamping_since_ns_ > kMostStampingNs) {
        AbandonHealing(now, "a process keeps the lock of a file");
      }
      break;
    case Heal::kSync: {
      if (syncs_done_ < awaited_sync_) break;
      const Configuration config = MakeConfig(Mode::kReplicated, candidates);
      SALIUS_CHECK(configurations_.AllRecoverable(config, durable_));
      Event(Level::kInfo, absl::StrCat("healing: noting mode replicated with ",
                                       std::popcount(candidates), " members"));
      StartNote(config);
      break;
    }
  }
}

}  // namespace salius
