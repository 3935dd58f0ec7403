// The end of a session of a direct volume: recovery, cut off and run again, and the judgement of its
// result.
#include <fcntl.h>

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "log/state_file.h"
#include "recovery/recovery.h"
#include "tests/sim/direct_sim.h"
#include "tests/sim/host_connector.h"

namespace salius::sim {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int kQuietRuns = 5;  // after this number of runs nothing disturbs a recovery any more

bool Changes(MemoryBacking::Call call) {
  switch (call) {
    case MemoryBacking::Call::kOpen:
    case MemoryBacking::Call::kStat:
    case MemoryBacking::Call::kGetXattr:
    case MemoryBacking::Call::kRead:
    case MemoryBacking::Call::kReadDir:
    case MemoryBacking::Call::kSpace:
      return false;
    default:
      return true;
  }
}

}  // namespace

std::string DirectSim::ContentOf(const SimFile& file) {
  auto fd = backing_.OpenAt(backing_.root(), file.name, O_RDONLY);
  if (!fd.ok()) return "";
  std::string content(DirectLedger::kCells * DirectLedger::kCellBytes, '\0');
  const auto got = backing_.Pread(fd->get(), content.data(), content.size(), 0);
  SALIUS_CHECK_OK(got);
  content.resize(*got);
  return content;
}

void DirectSim::Judge(const char* when, bool newest) {
  for (const auto& file : files_) {
    const bool there = backing_.StatAt(backing_.root(), file->name).ok();
    if (!there) {
      if (newest || file->ledger.named()) Break(absl::StrCat(when, ": ", file->name, " is gone"));
      continue;
    }
    const std::string content = ContentOf(*file);
    Mix(Crc32c({reinterpret_cast<const uint8_t*>(content.data()), content.size()}));
    const std::string wrong = file->ledger.Check(content, newest);
    if (!wrong.empty()) Break(absl::StrCat(when, ": ", file->name, ": ", wrong));
  }
}

VolumeState DirectSim::NotedState() {
  const auto salius = backing_.OpenAt(backing_.root(), kSaliusDir, O_RDONLY | O_DIRECTORY);
  SALIUS_CHECK_OK(salius);
  const auto state = StateFile::Open(backing_, salius->get(), kStateFileName);
  SALIUS_CHECK_OK(state);
  return state->state();
}

uint32_t DirectSim::LostMembers() {
  uint32_t lost = 0;
  for (const Member& member : NotedState().members) {
    for (size_t i = 0; i < replicas_.size(); ++i) {
      if (config_.replicas[i] == member.address &&
          replicas_[i]->acceptor().incarnation() != member.incarnation) {
        lost |= 1u << i;
      }
    }
  }
  return lost;
}

// Restarts replicas while there is no session.
void DirectSim::RecoveryFaults() {
  if (!faults_) return;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (Fault("replica restart beside recovery", options_.recovery_restart)) Restart(i);
    if (!random_.Chance(options_.recovery_amnesia)) continue;
    const uint32_t lost = lost_members_ | LostSince(1) | 1u << i;
    if (static_cast<uint32_t>(std::popcount(lost)) >= config_.acks) continue;
    if (Happens("amnesia beside recovery")) LoseMemory(i);
  }
}

bool DirectSim::RecoverOnce(bool calm) {
  uint32_t reachable = 0;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (calm || !Fault("replica away", options_.replica_away)) reachable |= 1u << i;
  }
  faults_ = !calm;
  HostConnector connector(
      replicas_, config_.replicas,
      {.now = [this] { return machine_.now(); },
       .reachable =
           [this, reachable](size_t i) {
             const bool down = faults_ && machine_.now() < replicas_[i]->down_until;
             return !down && (reachable >> i & 1) != 0;
           },
       .stream_breaks = [this] { return Fault("broken stream", options_.stream_breaks); }});
  auto salius = backing_.OpenAt(backing_.root(), kSaliusDir, O_RDONLY | O_DIRECTORY);
  SALIUS_CHECK_OK(salius);
  bool dead = false, past_pin = false;
  uint64_t calls_left = UINT64_MAX;
  RecoveryOptions options;
  options.connector = &connector;
  options.one_thread = true;
  options.fetch_attempts = 1;
  options.fetch_piece = 4;
  RecoveryReport report;
  options.partial_report = &report;
  options.step_hook = [&](RecoveryStep step) -> absl::Status {
    past_pin = past_pin || step == RecoveryStep::kPinned;
    RecoveryFaults();
    return absl::OkStatus();
  };
  if (Fault("recovery crash", options_.recovery_crash)) calls_left = random_.Below(60);
  bool error = false;
  uint64_t error_in = UINT64_MAX;
  if (Fault("recovery meets a disk error", options_.recovery_error)) error_in = random_.Below(40);
  backing_.OnEachCall([&](MemoryBacking::Call call) -> MemoryBacking::Turn {
    MemoryBacking::Turn turn;
    if (!Changes(call)) return turn;
    if (calls_left == 0 || calls_left-- == 1) dead = true;
    if (dead || error_in-- == 0) {
      error = true;
      turn.error = EIO;
    } else if (faults_ && random_.Chance(0.02)) {
      turn.before =
          random_.Chance(0.5) ? MemoryBacking::WriteBack::kJournal : MemoryBacking::WriteBack::kAll;
    }
    return turn;
  });
  absl::Status status;
  {
    VolumeDir dir;
    dir.backing = &backing_;
    dir.path = "/volume";
    dir.root_fd = backing_.root();
    dir.salius_fd = dir.lock_fd = salius->get();
    dir.config = config_;
    ++outcome_.recovery_runs;
    status = salius::Recover(dir, options).status();
    dir.root_fd = dir.salius_fd = dir.lock_fd = -1;  // they belong to others
  }
  backing_.OnEachCall(nullptr);
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
  salius = BackingFd();
  if (dead || (error && !status.ok())) {
    if (!dead && !absl::IsInternal(status)) {
      Break(absl::StrCat("recovery on a bad disk: ", status.ToString()));
    }
    MachineDies(dead ? random_.Chance(options_.power_cut) : false);
    return false;
  }
  if (status.ok()) return true;
  if (!absl::IsUnavailable(status)) Break(absl::StrCat("recovery: ", status.ToString()));
  if (!calm) return false;
  const uint32_t members = LostMembers();
  if (static_cast<uint32_t>(std::popcount(members)) < config_.acks) {
    Break(absl::StrCat("I1: all replicas answer, yet recovery refuses: ", status.ToString()));
  }
  const auto lost = static_cast<uint32_t>(std::popcount(members & LostSince(acked_)));
  if (acked_ > NotedState().checkpoint && lost < config_.acks) {
    Break(absl::StrCat("I1: ", lost, " members were lost since ", acked_,
                       " was issued, yet recovery refuses: ", status.ToString()));
  }
  outcome_.refused = true;  // f members were lost since every acknowledged record
  return true;
}

void DirectSim::Recover() {
  ++outcome_.recoveries;
  if (NotesAMemoryPutBack()) {
    Count("cut before a memory put back was noted as lost");
    unknowable_ = true;
    return;
  }
  lost_members_ = LostMembers();
  for (int run = 0; outcome_.broken.empty(); ++run) {
    machine_.Run(machine_.now() + static_cast<int64_t>(random_.Below(200)) * kMs);
    if (run < kQuietRuns) RecoveryFaults();
    if (RecoverOnce(run >= kQuietRuns)) break;
  }
  faults_ = true;
  if (!outcome_.broken.empty() || outcome_.refused) return;
  Judge("I1/I3/I9", false);
  if (Fault("power cut after a recovery", options_.cut_after_recovery)) {
    std::vector<std::string> before;
    for (const auto& file : files_) before.push_back(ContentOf(*file));
    MachineDies(true);
    for (size_t i = 0; i < files_.size(); ++i) {
      if (ContentOf(*files_[i]) != before[i]) {
        Break(absl::StrCat("I7: a power cut after recovery changes ", files_[i]->name));
      }
    }
    Judge("I7", false);
  }
}

}  // namespace salius::sim
