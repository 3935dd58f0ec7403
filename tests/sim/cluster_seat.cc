#include "tests/sim/cluster_seat.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace salius::sim {
namespace {

constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;

}  // namespace

ClusterSim::Seat::Seat(ClusterSim& sim) : sim_(sim) {
  if (sim.judge_ != nullptr) {
    seal_.emplace(*sim.judge_, sim.replicas_.size(), sim.key_rotation_ns_);
  }
}

void ClusterSim::Seat::At(int64_t delay, std::function<void()> what) {
  sim_.At(delay, [self = shared_from_this(), what = std::move(what)] {
    if (self->taken_) what();
  });
}

int64_t ClusterSim::Seat::DiskTime() {
  if (sim_.Fault("slow disk", sim_.options_.slow_disk)) {
    return static_cast<int64_t>(50 + sim_.random_.Below(2000)) * kMs;
  }
  return static_cast<int64_t>(200 + sim_.random_.Below(8000)) * kUs;
}

DiskTrouble ClusterSim::Seat::JobTrouble() {
  if (sim_.now_ < sim_.full_until_ &&
      sim_.Fault("no room in the volume's files", sim_.options_.full_job)) {
    return DiskTrouble::kFull;
  }
  if (sim_.Fault("disk write error", sim_.options_.write_error)) return DiskTrouble::kWriteFails;
  if (sim_.Fault("disk error", sim_.options_.disk_error)) return DiskTrouble::kSyncFails;
  return DiskTrouble::kNone;
}

bool ClusterSim::Seat::SyncFails() { return sim_.Fault("sync error", sim_.options_.disk_error); }

bool ClusterSim::Seat::ApplyFails() {
  return sim_.Fault("EIO when a record is applied", sim_.options_.apply_error);
}

bool ClusterSim::Seat::WriteBackFails() {
  return sim_.Fault("write-back error that others hear of", sim_.options_.write_back);
}

bool ClusterSim::Seat::LastSyncFails() {
  return sim_.Fault("last sync error", sim_.options_.last_sync);
}

bool ClusterSim::Seat::NoRoomFor(const RecordHeader& header) {
  if (sim_.now_ >= sim_.full_until_) return false;
  switch (header.op) {
    case Op::kCreate:
    case Op::kLink:
    case Op::kRename:
      return sim_.Fault("no room for a name", sim_.options_.full_name);
    case Op::kWrite:
      return sim_.Fault("no room for data", sim_.options_.full_data);
    default:
      return false;
  }
}

uint64_t ClusterSim::Seat::Realtime() {
  return static_cast<uint64_t>(std::max<int64_t>(sim_.now_ + sim_.realtime_offset_, 0));
}

// ---- datagrams

std::string ClusterSim::Seat::Seal(std::string frame) { return seal_ ? seal_->Seal(frame) : frame; }

void ClusterSim::Seat::SendToReplica(int replica, std::string datagram) {
  if (datagram.empty()) return;  // no key yet
  auto arrives = [self = shared_from_this(), replica](const std::string& bytes) {
    self->Arrives(replica, bytes);
  };
  sim_.Overhear(replica, /*to_replica=*/true, datagram, arrives);
  sim_.Deliver(sim_.replicas_[replica]->deaf_until, std::move(datagram), std::move(arrives));
}

void ClusterSim::Seat::Arrives(int replica, const std::string& datagram, bool late) {
  ReplicaHost& host = *sim_.replicas_[replica];
  if (sim_.now_ < host.stuck_until) {
    // The datagram waits in the socket's buffer.
    sim_.At(host.stuck_until - sim_.now_,
            [self = shared_from_this(), replica, datagram] { self->Arrives(replica, datagram); });
    return;
  }
  if (sim_.now_ < host.slow_until && !late) {
    sim_.At(
        static_cast<int64_t>(sim_.random_.Below(static_cast<uint64_t>(host.slowness))),
        [self = shared_from_this(), replica, datagram] { self->Arrives(replica, datagram, true); });
    return;
  }
  const uint64_t full = host.times_full();
  std::string answer = host.OnDatagram(sim_.now_, datagram);
  sim_.outcome_.memories_full += host.times_full() - full;
  if (answer.empty()) return;
  auto arrives = [self = shared_from_this(), replica](const std::string& bytes) {
    if (self->taken_) self->Hears(replica, bytes);
  };
  sim_.Overhear(replica, /*to_replica=*/false, answer, arrives);
  sim_.Deliver(host.mute_until, std::move(answer), std::move(arrives));
}

void ClusterSim::Seat::Hears(int replica, const std::string& datagram) {
  const std::string frame = seal_ ? seal_->Open(now(), replica, datagram) : datagram;
  if (frame.empty()) return;
  const bool session = primary_ == sim_.primary_.get();
  const bool must_notice = session && sim_.AckGoesBack(replica, frame);
  primary_->OnDatagram(replica, frame);
  const Replicator& core = primary_->core();
  if (must_notice && core.failure().ok() &&
      core.replica(replica, now()).incarnation == sim_.last_acks_[replica].incarnation) {
    sim_.Break(absl::StrCat("I5: replica ", replica, " names less than it did, and counts"));
  }
}

// ---- control calls

void ClusterSim::Seat::OpenSession(int replica, Epoch epoch, uint64_t session, Seq base) {
  At(static_cast<int64_t>(sim_.random_.Below(5 * kMs)),
     [this, replica, epoch, session, base] { CallOpen(replica, epoch, session, base); });
}

void ClusterSim::Seat::CallOpen(int replica, Epoch epoch, uint64_t session, Seq base) {
  std::optional<KeyOffer> offer;
  if (seal_) {
    if (seal_->calling(replica)) {  // the next call, then
      At(kMs, [=, this] { CallOpen(replica, epoch, session, base); });
      return;
    }
    offer = seal_->ForOpening(replica, {sim_.config_.volume, epoch, session});
    seal_->SetCalling(replica, true);
  }
  const auto opened = sim_.OpenAt(replica, epoch, session, base, offer ? &*offer : nullptr);
  At(static_cast<int64_t>(sim_.random_.Below(2 * kMs)), [this, replica, base, opened, offer] {
    sim_.Say("replica %d opened: %s", replica,
             opened.ok() ? "yes" : std::string(opened.status().message()).c_str());
    if (offer) {
      seal_->SetCalling(replica, false);
      if (opened.ok()) {
        seal_->Took(now(), replica, *offer, opened->ack_key, primary_->core().connected());
      } else if (absl::IsAlreadyExists(opened.status())) {
        seal_->Refused(*offer);
      }
    }
    primary_->OnOpened(replica, base, opened);
    if (opened.ok() && primary_ == sim_.primary_.get()) {
      sim_.last_acks_[replica] = {.incarnation = opened->incarnation,
                                  .opened_ns = sim_.PrimaryClock()};
    }
  });
}

void ClusterSim::Seat::RefreshKeys() {
  if (!seal_) return;
  const ReplicaMask wanted = seal_->Refresh(now(), primary_->core().connected());
  for (size_t i = 0; i < sim_.replicas_.size(); ++i) {
    if ((wanted & ReplicaBit(i)) == 0) continue;
    seal_->SetCalling(static_cast<int>(i), true);
    At(static_cast<int64_t>(sim_.seal_random_.Below(5 * kMs)),
       [this, i] { GiveKey(static_cast<int>(i)); });
  }
}

void ClusterSim::Seat::GiveKey(int replica) {
  seal_->SetCalling(replica, false);
  const Replicator& core = primary_->core();
  if ((core.connected() & ReplicaBit(replica)) == 0) return;
  const std::optional<KeyOffer> offer = seal_->Next(now(), replica);
  if (!offer) return;
  seal_->SetCalling(replica, true);
  const Incarnation incarnation = core.replica(replica, now()).incarnation;
  auto given = sim_.GiveKeyAt(replica, *primary_, *offer);
  if (given.ok() && sim_.SealFault("answer about a key lost", sim_.options_.lost_key_answer)) {
    given = absl::DeadlineExceededError("the answer is lost");
  }
  At(static_cast<int64_t>(sim_.seal_random_.Below(2 * kMs)),
     [this, replica, offer, incarnation, given] {
       TakeAnswer(replica, *offer, incarnation, given);
     });
}

// As client/session/replica_keys.cc.
void ClusterSim::Seat::TakeAnswer(int replica, const KeyOffer& offer, Incarnation incarnation,
                                  const absl::StatusOr<Opening>& given) {
  seal_->SetCalling(replica, false);
  sim_.Say("replica %d was given a key: %s", replica,
           given.ok() ? "yes" : std::string(given.status().message()).c_str());
  if (given.ok() && given->incarnation == incarnation) {
    seal_->Took(now(), replica, offer, given->ack_key, primary_->core().connected());
  } else if (given.ok() || absl::IsNotFound(given.status())) {
    primary_->OnWentBack(replica);
  } else if (absl::IsFailedPrecondition(given.status())) {
    primary_->OnOpened(replica, 0, given.status());
  } else if (absl::IsAlreadyExists(given.status())) {
    seal_->Refused(offer);
  }
}

}  // namespace salius::sim
