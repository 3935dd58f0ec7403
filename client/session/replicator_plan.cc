// The replicator's plans: which mode, which members, which note, when a checkpoint
// (docs/protocol.md, "Notes"). pure, as replicator.h says.
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "client/session/replicator.h"
#include "common/check.h"

namespace salius {
namespace {

constexpr int64_t kMillisecond = 1'000'000;

}  // namespace

// Starts at most one note, and a sync when one is due. Called after every input.
void Replicator::Plan(int64_t now) {
  if (!failure_.ok()) return;
  if (gathering_.soon()) Send(now, SendWhen::kSoon);
  if (counting_ && std::popcount(configurations_.members()) < options_.acks) {
    BeginLocal(now, absl::StrCat("fewer than ", options_.acks, " members left"));
  }
  if (!configurations_.pending()) {
    if (going_local_) {
      PlanGoingLocal();
    } else if (configurations_.noted().mode == Mode::kLocal) {
      PlanLocal(now);
    } else {
      PlanReplicated(now);
    }
  }
  MaybeCheckpoint(now);
}

void Replicator::RequestCheckpoint(int64_t now) {
  checkpoint_requested_ = true;
  Plan(now);
}

void Replicator::RequestNote(int64_t now) {
  note_requested_ = true;
  Plan(now);
}

// Takes the first step to mode local: acks stop counting, and every uncheckpointed record is wanted
// on the disk.
void Replicator::BeginLocal(int64_t now, const std::string& why) {
  counting_ = false;
  going_local_ = true;
  local_reason_ = why;
  stable_.WantAll();
  spells_.Add(now - well_since_ns_);
  heal_after_ns_ = now + spells_.pause_ns();
  checkpoint_requested_ = true;
  Event(Level::kWarning, absl::StrCat("going to mode local: ", why));
}

// Takes the second step: notes `local` once every durable record is in the stable log or synced.
void Replicator::PlanGoingLocal() {
  // Without a stable log a recovery under `local` replays nothing, so the disk must hold all that
  // was issued. Nothing is stamped any more.
  if (options_.noticed && synced_ < issued()) {
    checkpoint_requested_ = true;
    return;
  }
  const Configuration config = MakeConfig(Mode::kLocal, 0);
  if (!configurations_.AllRecoverable(config, durable_)) {
    stable_.WantAll();
    return;
  }
  StartNote(config);
}

void Replicator::PlanLocal(int64_t now) {
  if (options_.noticed) return PlanHealing(now);
  bool base_too_new = false;
  const ReplicaMask candidates = now >= heal_after_ns_ ? Candidates(now, &base_too_new) : 0;
  if (std::popcount(candidates) >= options_.acks) {
    const Configuration config = MakeConfig(Mode::kReplicated, candidates);
    if (configurations_.AllRecoverable(config, durable_)) {
      Event(Level::kInfo, absl::StrCat("healing: noting mode replicated with ",
                                       std::popcount(candidates), " members"));
      StartNote(config);
      return;
    }
  } else if (base_too_new) {
    checkpoint_requested_ = true;
  }
  if (synced_ > checkpoint() || note_requested_) StartNote(MakeConfig(Mode::kLocal, 0));
}

void Replicator::PlanReplicated(int64_t now) {
  bool base_too_new = false;
  const ReplicaMask kept = configurations_.members();
  const ReplicaMask target = kept | Candidates(now, &base_too_new);
  if (base_too_new) checkpoint_requested_ = true;
  const bool members_change = target != kept || kept != configurations_.noted().members;
  if (!members_change && synced_ <= checkpoint() && !note_requested_) return;
  const Configuration config = MakeConfig(Mode::kReplicated, target);
  if (configurations_.AllRecoverable(config, durable_)) {
    if (members_change) {
      const int members = std::popcount(target);
      const int before = std::popcount(configurations_.noted().members);
      Event(members < before ? Level::kWarning : Level::kInfo,
            absl::StrCat("noting members: ", members, " (were ", before, ") of ",
                         options_.replicas, " replicas"));
    }
    StartNote(config);
  } else {
    // Some durable record relied on a lost replica: the disk must hold it first.
    stable_.WantAll();
    checkpoint_requested_ = true;
  }
}

int Replicator::SameMemoryAs(int index) const {
  const ReplicaMask members = configurations_.all_members();
  const bool member = (members & ReplicaBit(index)) != 0;
  for (int i = 0; i < static_cast<int>(replicas_.size()); ++i) {
    if (i == index || replicas_[i].link != Link::kOpen ||
        configurations_.incarnation(i) != configurations_.incarnation(index)) {
      continue;
    }
    // A replica that is a member already stays the one that counts.
    const bool other_member = (members & ReplicaBit(i)) != 0;
    if (other_member != member ? other_member : i < index) return i;
  }
  return -1;
}

// Returns the replicas whose acks may be counted from a note on. They keep up, have done so for a
// while if they were ever lost, and hold everything above the checkpoint that the note will name.
ReplicaMask Replicator::Candidates(int64_t now, bool* base_too_new) const {
  ReplicaMask mask = 0;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const Replica& replica = replicas_[i];
    if (replica.keepup_since_ns < 0 || !KeepsUp(now, static_cast<int>(i))) continue;
    if (SameMemoryAs(static_cast<int>(i)) >= 0) continue;
    if (now - replica.keepup_since_ns < replica.setbacks.pause_ns()) continue;
    if (promises_.in_doubt() & ReplicaBit(i)) continue;
    if (replica.base > synced_ + 1) {
      *base_too_new = true;
      continue;
    }
    mask |= ReplicaBit(i);
  }
  return mask;
}

Configuration Replicator::MakeConfig(Mode mode, ReplicaMask members) const {
  Configuration config;
  config.mode = mode;
  config.checkpoint = synced_;
  for (int i = 0; members >> i != 0; ++i) {
    if (!(members & ReplicaBit(i))) continue;
    configurations_.AddMember(i, &config);
    config.base[i] = replicas_[i].base;
    config.store[i] = promises_.store(i);
  }
  return config;
}

void Replicator::StartNote(const Configuration& config) {
  configurations_.Start(config);
  note_requested_ = false;
  noted_sync_ = syncs_done_;
  out_.note = static_cast<const Note&>(config);
}

void Replicator::OnNoteWritten(int64_t now, const absl::Status& status) {
  SALIUS_CHECK(configurations_.pending().has_value());
  if (!failure_.ok()) return;
  if (!status.ok()) {
    Fail(absl::Status(status.code(),
                      absl::StrCat("the state file could not be written: ", status.message(),
                                   ". The volume is read-only and keeps its log")));
    return;
  }
  const Note before = configurations_.noted();
  configurations_.Written();
  const Note& noted = configurations_.noted();
  clean_sync_ = std::max(clean_sync_, noted_sync_);
  NoteClean();  // a sync that ended while the note was written, and found nothing new to note
  if (noted.mode == Mode::kLocal) {
    going_local_ = false;
    counting_ = false;
    if (before.mode == Mode::kReplicated) {
      Event(Level::kWarning, absl::StrCat("mode local: ", local_reason_));
    }
  } else {
    counting_ = !going_local_;
    heal_ = Heal::kNone;
    if (before.mode == Mode::kLocal) {
      well_since_ns_ = now;
      Event(Level::kInfo, absl::StrCat("mode replicated, with ", std::popcount(noted.members),
                                       " members of ", options_.replicas, " replicas"));
    }
    const ReplicaMask members = configurations_.members();
    for (size_t i = 0; i < replicas_.size(); ++i) {
      const bool member = (members & ReplicaBit(i)) != 0;
      if (member && replicas_[i].well_since_ns < 0) replicas_[i].well_since_ns = now;
    }
  }
  if (noted.checkpoint > before.checkpoint) {
    window_.CutTo(noted.checkpoint);
    out_.cut = noted.checkpoint;
    out_.window_opened = true;
    for (size_t i = 0; i < replicas_.size(); ++i) {
      if (replicas_[i].link == Link::kOpen) out_.probes |= ReplicaBit(i);  // the trim
      SendNew(now, static_cast<int>(i));
    }
  }
  AdvanceDurable();
  Plan(now);
}

bool Replicator::AwaitsApplied(int64_t now) const {
  if (applied_ >= durable_ || !failure_.ok()) return false;
  // Half of what begins a checkpoint.
  return checkpoint_requested_ || oldest_uncheckpointed_ns(now) >= options_.tau_ns / 4 ||
         uncheckpointed_bytes() >= options_.log_max_bytes / 4 ||
         window_.size() >= window_.capacity() / 4;
}

void Replicator::MaybeCheckpoint(int64_t now) {
  if (sync_in_flight_ || (applied_ <= synced_ && !sync_requested_)) return;
  const bool old = oldest_uncheckpointed_ns(now) >= options_.tau_ns / 2;
  const bool large = uncheckpointed_bytes() >= options_.log_max_bytes / 2 ||
                     window_.size() >= window_.capacity() / 2;
  if (!checkpoint_requested_ && !sync_requested_ && !old && !large) return;
  checkpoint_requested_ = sync_requested_ = false;
  sync_in_flight_ = true;
  ++syncs_begun_;
  out_.start_sync = true;
}

std::string Replicator::ModeDetail(int64_t now) const {
  if (!failure_.ok()) return std::string(failure_.message());
  const std::optional<Configuration>& pending = configurations_.pending();
  if (going_local_) return absl::StrCat("on the way to local: ", local_reason_);
  if (configurations_.noted().mode == Mode::kLocal) {
    if (pending && pending->mode == Mode::kReplicated) return "healing: noting replicated";
    bool base_too_new = false;
    const int ready = std::popcount(Candidates(now, &base_too_new));
    std::string detail =
        absl::StrCat(local_reason_, "; ", ready, " of ", options_.acks, " needed replicas keep up");
    if (base_too_new) detail += "; waiting for a checkpoint";
    if (promises_.in_doubt() != 0) {
      detail += absl::StrCat("; ", std::popcount(promises_.in_doubt()),
                             " came back without their memory and their promises, and a recovery "
                             "may have fenced them: if too few others are left, unmount, then "
                             "mount again");
    }
    if (heal_ != Heal::kNone) detail += "; healing: syncing the disk";
    if (now < heal_after_ns_) {
      detail += absl::StrCat("; not back before ", (heal_after_ns_ - now) / kMillisecond, " ms");
    }
    return detail;
  }
  if (configurations_.AwaitsNoteOfLoss()) {
    return "a replica was lost: nothing is acknowledged until that is noted";
  }
  return pending ? "a note is being written" : "";
}

}  // namespace salius
