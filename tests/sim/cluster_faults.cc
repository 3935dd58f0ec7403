// The faults of a simulated session, and the primary that was only frozen.
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/bytes.h"
#include "common/check.h"
#include "log/state_file.h"
#include "proto/frame.h"
#include "storage/backing.h"
#include "tests/sim/cluster_seat.h"
#include "tests/sim/cluster_sim.h"

namespace salius::sim {
namespace {

constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;

}  // namespace

bool ClusterSim::Fault(const char* what, double chance) {
  return faults_ && random_.Chance(chance) && Happens(what);
}

bool ClusterSim::Happens(const char* what) {
  const uint64_t number = ++outcome_.faults;
  if (without_ != nullptr && without_->count(number) > 0) return false;
  Count(what);
  Say("fault %d: %s", number, what);
  return true;
}

// Draws a clock's speed.
double ClusterSim::DrawRate() {
  const uint64_t most = options_.drift_permille;
  return static_cast<double>(1000 - most) / 1000.0 + random_.Below(2 * most) / 1000.0;
}

int64_t ClusterSim::DrawJump() {
  const int64_t most = options_.clock_jump_s * 1000;
  return static_cast<int64_t>(random_.Below(static_cast<uint64_t>(2 * most))) * kMs - most * kMs;
}

Death ClusterSim::DrawDeath() {
  if (Fault("power cut", options_.power_cut)) return Death::kPower;
  return Fault("remount", options_.remount) ? Death::kRemount : Death::kProcess;
}

bool ClusterSim::LossAllowed(size_t replica) const {
  if (!primary_->NeedsReplicas()) return true;
  const Seq oldest = std::min(primary_->OldestNeeded(), primary_->core().issued());
  return static_cast<uint32_t>(std::popcount(LostSince(oldest) | 1u << replica)) < config_.acks;
}

uint32_t ClusterSim::LostSince(Seq seq) const {
  uint32_t lost = 0;
  for (size_t i = 0; i < loss_.size(); ++i) lost |= (loss_[i].upto >= seq ? 1u : 0u) << i;
  return lost;
}

void ClusterSim::CountLoss(size_t replica, bool same_incarnation) {
  Loss& loss = loss_[replica];
  loss.upto = primary_ != nullptr ? std::max<Seq>(primary_->core().issued(), 1) : kNever;
  loss.unnoticed = true;
  loss.same_incarnation |= same_incarnation;
}

void ClusterSim::CountUnnoticedLosses(const Primary& primary) {
  for (size_t i = 0; i < loss_.size(); ++i) {
    Loss& loss = loss_[i];
    if (!loss.unnoticed) continue;
    const Incarnation known =
        primary.core().replica(static_cast<int>(i), PrimaryClock()).incarnation;
    const bool has_it = known == replicas_[i]->acceptor().incarnation();
    if (loss.same_incarnation || (known != 0 && !has_it)) {
      loss.upto = std::max(loss.upto, primary.core().issued());
    } else if (has_it) {
      loss.unnoticed = false;
    }
  }
}

void ClusterSim::LastLosses() {
  if (!last_random_.Chance(options_.last_losses)) return;
  const uint64_t first = last_random_.Below(replicas_.size());
  for (size_t n = 0; n < replicas_.size(); ++n) {
    const size_t i = (first + n) % replicas_.size();
    if (!LossAllowed(i) || !Happens("amnesia right before the crash")) continue;
    CountLoss(i, false);
    LoseMemory(i);
  }
}

void ClusterSim::Restart(size_t replica) {
  replicas_[replica]->RestartProcess(now_);
  Say("replica %d restarts with its memory", replica);
  TakeTimeToStart(replica);
}

void ClusterSim::LoseMemory(size_t replica) {
  const bool promises_too =
      later_random_.Chance(options_.lost_promises) && Happens("promises lost with the memory");
  replicas_[replica]->LoseMemory(now_, promises_too);
  ++outcome_.losses;
  Say("replica %d loses its memory", replica);
  TakeTimeToStart(replica);
}

void ClusterSim::PutBackFaults(size_t replica) {
  if (!put_backs_) return;
  ReplicaHost& host = *replicas_[replica];
  const Inventory held = host.acceptor().GetInventory(host.Clock(now_), config_.volume);
  // Only a memory of this session: an older one would forget a fence too.
  if (held.known && held.epoch == primary_->epoch() && put_back_random_.Chance(options_.remember)) {
    host.Remember();
  }
  if (!host.remembers() || !put_back_random_.Chance(options_.put_back) || !LossAllowed(replica) ||
      !Happens("memory put back")) {
    return;
  }
  CountLoss(replica, true);
  put_back_at_[replica] = primary_->core().issued();
  host.PutBack(now_);
  ++outcome_.losses;
  Say("replica %d has an earlier memory", replica);
  TakeTimeToStart(replica);
}

bool ClusterSim::AckGoesBack(size_t replica, std::string_view datagram) {
  const auto header = DecodeFrameHeader(AsBytes(datagram));
  if (!header.ok() || header->epoch != primary_->epoch() ||
      header->session != primary_->session()) {
    return false;
  }
  const auto ack = DecodeAckPayload(AsBytes(datagram).subspan(kFrameHeaderBytes));
  LastAck& last = last_acks_[replica];
  const auto sent = static_cast<int64_t>(header->send_time_ns);
  if (!ack.ok() || (ack->flags & (kAckFenced | kAckUnknownSession)) != 0 ||
      ack->incarnation != last.incarnation || sent < last.opened_ns) {
    return false;
  }
  if (ack->contiguous < last.contiguous) return sent > last.ns;
  if (ack->contiguous > last.contiguous) last.ns = PrimaryClock();
  last.contiguous = ack->contiguous;
  return false;
}

bool ClusterSim::NotesAMemoryPutBack() const {
  const auto state = StateFile::Open(LinuxBacking(), disk_.dirfd(), kStateFileName);
  SALIUS_CHECK_OK(state);
  for (const Member& member : state->state().members) {
    for (size_t i = 0; i < replicas_.size(); ++i) {
      if (config_.replicas[i] == member.address && put_back_at_[i].has_value() &&
          replicas_[i]->acceptor().incarnation() == member.incarnation &&
          member.base <= *put_back_at_[i]) {
        return true;
      }
    }
  }
  return false;
}

void ClusterSim::TakeTimeToStart(size_t replica) {
  if (!Fault("slow restart", options_.slow_restart)) return;
  const int64_t time = static_cast<int64_t>(random_.Below(options_.restart_ms)) * kMs;
  ReplicaHost& host = *replicas_[replica];
  host.down_until = now_ + time;
  host.deaf_until = std::max(host.deaf_until, host.down_until);
  host.mute_until = std::max(host.mute_until, host.down_until);
  Say("replica %d is down until %d", replica, host.down_until / kUs);
  At(time, [&host, this] { host.RestartProcess(now_); });
}

void ClusterSim::Faults() {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    ReplicaHost& host = *replicas_[i];
    if (Fault("partition", options_.partition)) {
      const int64_t until = now_ + static_cast<int64_t>(random_.Below(1500)) * kMs;
      const uint64_t way = random_.Below(3);
      if (way != 1) host.deaf_until = until;
      if (way != 0) host.mute_until = until;
      Say("replica %d is cut off, way %d, until %d", i, way, until / kUs);
    }
    if (Fault("stuck replica", options_.stuck)) {
      host.stuck_until = now_ + static_cast<int64_t>(random_.Below(1000)) * kMs;
      Say("replica %d is stuck", i);
    }
    if (Fault("slow replica", options_.slow_replica)) {
      host.slow_until = now_ + static_cast<int64_t>(random_.Below(1500)) * kMs;
      host.slowness = static_cast<int64_t>(1 + random_.Below(80)) * kMs;
      Say("replica %d is slow", i);
    }
    if (Fault("replica restart", options_.restart)) {
      Restart(i);
    }
    if (Fault("amnesia", options_.amnesia) && LossAllowed(i)) {
      CountLoss(i, false);
      LoseMemory(i);
    }
    PutBackFaults(i);
    if (Fault("clock jump of a replica", options_.replica_clock_jump)) {
      host.realtime_offset += DrawJump();
    }
  }
  if (tight_ && Fault("disk full", options_.full)) {
    full_until_ = now_ + static_cast<int64_t>(random_.Below(600)) * kMs;
  }
  if (Fault("clock jump", options_.clock_jump)) {
    realtime_offset_ += DrawJump();
  }
}

void ClusterSim::TickReplicas() {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    ReplicaHost& host = *replicas_[i];
    const bool before = host.abandoned();
    const std::string wrong = host.Tick(now_);
    if (!wrong.empty()) Break(absl::StrCat("I6: replica ", i, ": ", wrong));
    if (host.abandoned() == before) continue;
    Say("replica %d gives up its log", i);
    Count("log given up");
    CountLoss(i, true);
  }
}

void ClusterSim::PassWithoutPrimary(int64_t ns) {
  RunEvents(now_ + 2000 * kMs);  // datagrams in flight arrive
  const auto held = [this](size_t i) {
    return replicas_[i]->acceptor().GetInventory(replicas_[i]->Clock(now_), config_.volume);
  };
  std::vector<Inventory> before;
  for (size_t i = 0; i < replicas_.size(); ++i) before.push_back(held(i));
  const int64_t until = now_ + ns;
  while (now_ < until && outcome_.broken.empty()) {
    RunEvents(now_ + 250 * kMs);
    TickReplicas();
  }
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i]->abandoned()) continue;
    const Inventory after = held(i);
    if (after.known != before[i].known || after.records < before[i].records) {
      Break(absl::StrCat("I6: replica ", i, " held ", before[i].records, " records, and after ",
                         ns / kMs, " ms ", after.records));
    }
    if (after.records > 0 && !after.overdue) {
      Break(absl::StrCat("I6: replica ", i, " keeps old records without a word"));
    }
  }
}

void ClusterSim::ZombieActs() {
  if (zombie_ == nullptr || !random_.Chance(options_.zombie_step)) return;
  const bool fenced = zombie_decided_.has_value();
  RecordHeader header;
  header.op = Op::kWrite;
  header.file_id = 1;
  if (!fenced && !wanted_.files.empty()) {
    const auto any = static_cast<long>(random_.Below(wanted_.files.size()));
    header.file_id = std::next(wanted_.files.begin(), any)->first;
  }
  // The recovery that fences it may still find its record: so it must not be for a file that may
  // not exist.
  const bool there = fenced || (!wanted_.files.empty() && !tight_);
  if (there && zombie_->CanIssue(8)) {
    CheckDeadline(*zombie_);
    const Seq seq = zombie_->Issue(header, "zombie");
    if (!fenced) CountUnnoticedLosses(*zombie_);
    Say("the frozen primary issues %d", seq);
    if (!fenced) {
      done_.push_back({header, "zombie", 0});
      ++outcome_.late;
    }
  }
  zombie_->Tick();
  zombie_seat_->RefreshKeys();
  if (!fenced) RunEvents(now_ + static_cast<int64_t>(random_.Below(2 * kMs)));
}

void ClusterSim::CheckDeadline(const Primary& primary) {
  const Seq checkpoint = primary.core().checkpoint();
  if (primary.core().issued() <= checkpoint) return;
  const int64_t age = PrimaryClock() - primary.IssuedAt(checkpoint + 1);
  const int64_t most = (config_.k * config_.tau_ms * 1000 - 2 * config_.delta_us) * kUs;
  if (age > most) {
    Break(absl::StrCat("I6: a record is issued while one waits for the disk since ", age / kUs,
                       " us"));
  }
}

void ClusterSim::CheckZombie() {
  if (zombie_ != nullptr && zombie_decided_.has_value() &&
      zombie_->core().durable() > *zombie_decided_) {
    Break(absl::StrCat("I4: a fenced primary acknowledges ", zombie_->core().durable(),
                       ", recovery had decided for ", *zombie_decided_));
  }
}

}  // namespace salius::sim
