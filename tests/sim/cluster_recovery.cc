// The second half of a lifetime: recovery, cut off and run again, and the judgement of its result.
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "recovery/recovery.h"
#include "storage/backing.h"
#include "tests/sim/cluster_sim.h"
#include "tests/sim/host_connector.h"

namespace salius::sim {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int kQuietRuns = 5;  // after this number of runs nothing disturbs a recovery any more

}  // namespace

uint32_t ClusterSim::LostMembers() {
  const auto state = StateFile::Open(LinuxBacking(), disk_.dirfd(), kStateFileName);
  SALIUS_CHECK_OK(state);
  uint32_t lost = 0;
  for (const Member& member : state->state().members) {
    for (size_t i = 0; i < replicas_.size(); ++i) {
      if (config_.replicas[i] == member.address &&
          (replicas_[i]->given_up() > state->state().checkpoint + 1 ||
           replicas_[i]->acceptor().incarnation() != member.incarnation)) {
        lost |= 1u << i;
      }
    }
  }
  return lost;
}

// Restarts replicas while there is no primary.
void ClusterSim::RecoveryFaults() {
  if (!faults_) return;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (Fault("replica restart beside recovery", options_.recovery_restart)) Restart(i);
    if (!Fault("amnesia beside recovery", options_.recovery_amnesia)) continue;
    const uint32_t lost = lost_members_ | LostSince(oldest_needed_) | 1u << i;
    if (static_cast<uint32_t>(std::popcount(lost)) >= config_.acks) continue;
    CountLoss(i, false);
    LoseMemory(i);
  }
}

// Draws a failing or full disk for this run. Returns whether there is one.
bool ClusterSim::DrawRecoveryTrouble() {
  if (Fault("recovery meets a disk error", options_.recovery_error)) {
    switch (random_.Below(4)) {
      case 0:
        disk_.FailWrite(1 + random_.Below(5));
        break;
      case 1:
        disk_.FailSync(1 + random_.Below(8));
        break;
      case 2:
        fs_.BreakAfter(1 + random_.Below(40));
        break;
      default:
        fs_.FailNextSync(&random_);
    }
    return true;
  }
  if (!Fault("recovery finds the disk full", options_.recovery_full)) return false;
  if (random_.Chance(0.5)) {
    disk_.FullAfter(1 + random_.Below(8));
  } else {
    fs_.FullAfter(1 + random_.Below(40));
  }
  return true;
}

bool ClusterSim::RecoverOnce(bool calm) {
  uint32_t reachable = 0;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (calm || !Fault("replica away", options_.replica_away)) reachable |= 1u << i;
  }
  faults_ = !calm;
  HostConnector connector(
      replicas_, config_.replicas,
      {.now = [this] { return now_; },
       .reachable =
           [this, reachable](size_t i) {
             const bool down = faults_ && now_ < replicas_[i]->down_until;
             return !down && (reachable >> i & 1) != 0;
           },
       .stream_breaks = [this] { return Fault("broken stream", options_.stream_breaks); }});
  VolumeDir dir;
  dir.path = "/sim";
  dir.root_fd = dir.salius_fd = dir.lock_fd = disk_.dirfd();
  dir.config = config_;
  RecoveryOptions options;
  options.connector = &connector;
  options.target = &fs_;
  options.one_thread = true;
  options.fetch_attempts = 1;
  options.fetch_piece = 4;
  RecoveryReport report;
  options.partial_report = &report;
  bool past_pin = false;
  uint64_t steps_left = UINT64_MAX;
  if (!calm && Fault("recovery crash", options_.recovery_crash)) {
    switch (random_.Below(3)) {
      case 0:
        disk_.DieAfter(1 + random_.Below(8), random_.Chance(options_.last_sync));
        break;
      case 1:
        fs_.DieAfter(1 + random_.Below(40));
        break;
      default:
        steps_left = random_.Below(24);
    }
  }
  const bool trouble = !calm && DrawRecoveryTrouble();
  options.step_hook = [&](RecoveryStep step) -> absl::Status {
    past_pin = past_pin || step == RecoveryStep::kPinned;
    RecoveryFaults();
    ZombieActs();
    if (steps_left-- == 0) return absl::AbortedError("cut off");
    return absl::OkStatus();
  };
  ++outcome_.recovery_runs;
  const absl::Status status = salius::Recover(dir, options).status();
  dir.root_fd = dir.salius_fd = dir.lock_fd = -1;  // the descriptor belongs to the disk
  Say("recovery with replicas %x: %s up to %d %s", reachable, RecoveryOutcomeName(report.outcome),
      report.decided, std::string(status.message()));
  if (pinned_ && report.decided != pinned_at_ && (status.ok() || report.already_decided) &&
      report.outcome != RecoveryOutcome::kClean) {
    Break(absl::StrCat("I7: recovery decided for ", report.decided, " after ", pinned_at_));
  }
  if (past_pin || report.already_decided) {
    pinned_ = true;
    pinned_at_ = report.decided;
  }
  outcome_.same_lives += report.same_life ? 1 : 0;
  const bool died = disk_.dead() || fs_.dead() || report.outcome == RecoveryOutcome::kInterrupted;
  if (died || (trouble && !status.ok() && !absl::IsUnavailable(status))) {
    // The disk's errors may end it, but must never make it report a loss.
    if (!died && !absl::IsInternal(status) && !absl::IsResourceExhausted(status)) {
      Break(absl::StrCat("recovery on a bad disk: ", status.ToString()));
    }
    MachineDies(DrawDeath(), false);
    return false;
  }
  disk_.Mend();
  fs_.HasRoom();
  fs_.FailNextSync(nullptr);
  if (!status.ok()) {
    if (!absl::IsUnavailable(status)) Break(absl::StrCat("recovery: ", status.ToString()));
    if (!calm) return false;
    if (static_cast<uint32_t>(std::popcount(LostMembers())) < config_.acks) {
      Break(absl::StrCat("I1: all replicas answer, yet recovery refuses: ", status.ToString()));
    }
    const auto state = StateFile::Open(LinuxBacking(), disk_.dirfd(), kStateFileName);
    SALIUS_CHECK_OK(state);
    const auto lost = static_cast<uint32_t>(std::popcount(LostMembers() & LostSince(acked_)));
    if (acked_ > state->state().checkpoint && lost < config_.acks) {
      Break(absl::StrCat("I1: ", lost, " members were lost since ", acked_,
                         " was issued, yet recovery refuses: ", status.ToString()));
    }
    // f members were lost since every acknowledged record: recovery reports that.
    outcome_.refused = true;
    return true;
  }
  // Cut off right after its commit: a run that finds the volume clean reports no T.
  if (report.outcome == RecoveryOutcome::kClean) report.decided = pinned_at_;
  Judge(report.decided);
  return true;
}

// Returns how the tree differs from the result of the first `decided` records; empty when it does
// not.
std::string ClusterSim::Compare(Seq decided) {
  // Operations that found no room, whose cancel is lost: their callers got no answer. So the replay
  // may have performed them, or not (when the checkpoint had passed them).
  std::vector<Seq> open;
  for (const Held& held : held_) {
    if (held.refused && held.seq <= decided && (held.cancel == 0 || held.cancel > decided)) {
      open.push_back(held.seq);
    }
  }
  std::string difference;
  for (uint32_t some = 0; some < 1u << open.size(); ++some) {
    std::vector<Seq> without;
    for (size_t i = 0; i < open.size(); ++i) {
      if ((some >> i & 1) != 0) without.push_back(open[i]);
    }
    std::map<FileId, Unsure> unsure;
    Tree expected = Expected(decided, std::move(without), &unsure);
    for (const auto& [id, may] : unsure) {
      const auto got = fs_.tree().files.find(id);
      const auto want = expected.files.find(id);
      if (got == fs_.tree().files.end() || want == expected.files.end()) continue;
      const std::string& there = got->second;
      if (there.size() < want->second.size() || there.size() > may.most) continue;
      want->second.resize(there.size(), '\0');
      for (const uint64_t at : may.bytes) {
        if (at < there.size()) want->second[at] = there[at];
      }
    }
    difference = Difference(fs_.tree(), expected);
    if (difference.empty()) return difference;
  }
  return difference;
}

void ClusterSim::Judge(Seq decided) {
  // Records that the frozen primary acknowledged before it was fenced count.
  if (zombie_ != nullptr && !zombie_decided_) acked_ = std::max(acked_, zombie_->core().durable());
  if (decided < acked_) {
    Break(absl::StrCat("I1: acknowledged up to ", acked_, ", recovered up to ", decided));
  }
  for (const auto& [id, content] : fs_.tree().files) {
    Mix(id);
    Mix(Crc32c(AsBytes(content)));
  }
  for (const auto& [name, id] : fs_.tree().names) Mix(Crc32c(AsBytes(name.name)) + id);
  const std::string difference = Compare(decided);
  if (!difference.empty()) Break(absl::StrCat("I2/I3: at ", decided, ": ", difference));
  faults_ = true;
  if (Fault("power cut after a recovery", options_.cut_after_recovery)) {
    const Tree before = fs_.tree();
    MachineDies(Death::kPower, true);
    const std::string lost = Difference(fs_.tree(), before);
    if (!lost.empty()) Break(absl::StrCat("I7: a power cut after recovery: ", lost));
  }
  decided_ = decided;
  if (zombie_ != nullptr && !zombie_decided_.has_value()) zombie_decided_ = decided;
  CheckZombie();
}

void ClusterSim::Recover() {
  ++outcome_.recoveries;
  if (later_random_.Chance(options_.late_recovery) && Happens("recovery starts late")) {
    PassWithoutPrimary(later_random_.Between(static_cast<int64_t>(options_.late_least_s),
                                      static_cast<int64_t>(options_.late_most_s)) *
                1000 * kMs);
  }
  if (NotesAMemoryPutBack()) {
    Count("cut before a memory put back was noted as lost");
    unknowable_ = true;
    return;
  }
  lost_members_ = LostMembers();
  for (int run = 0; outcome_.broken.empty(); ++run) {
    RunEvents(now_ + static_cast<int64_t>(random_.Below(200 * kMs)));
    TickReplicas();
    if (run < kQuietRuns) RecoveryFaults();
    ZombieActs();
    if (RecoverOnce(run >= kQuietRuns)) break;
  }
  if (outcome_.broken.empty() && !outcome_.refused && random_.Chance(0.1)) {
    // Run it again: there is nothing left to do.
    const Tree before = fs_.tree();
    pinned_at_ = decided_;
    RecoverOnce(true);
    if (!(fs_.tree() == before)) Break("I7: recovery of a clean volume changes it");
  }
}

}  // namespace salius::sim
