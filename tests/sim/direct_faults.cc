// The faults of a simulated direct volume.
#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/direct/window/robust_lock.h"
#include "common/check.h"
#include "proto/frame_format.h"
#include "tests/sim/direct_sim.h"

namespace salius::sim {
namespace {

constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;

}  // namespace

bool DirectSim::Fault(const char* what, double chance) {
  return faults_ && random_.Chance(chance) && Happens(what);
}

bool DirectSim::Happens(const char* what) {
  const uint64_t number = ++outcome_.faults;
  if (without_ != nullptr && without_->count(number) > 0) return false;
  Count(what);
  Say("fault %d: %s", number, what);
  return true;
}

// ---- the network

void DirectSim::Deliver(int64_t cut_off_until, std::string bytes,
                        std::function<void(const std::string&)> arrives) {
  if (machine_.now() < cut_off_until) return;
  int copies = 1;
  if (Fault("loss", options_.loss)) return;
  if (Fault("duplicate", options_.duplicate)) copies = 2;
  if (Fault("damaged datagram", options_.corrupt)) {
    bytes[random_.Below(bytes.size())] ^= static_cast<char>(1 << random_.Below(8));
  }
  for (int i = 0; i < copies; ++i) {
    int64_t delay = static_cast<int64_t>(options_.least_delay_us * kUs +
                                         random_.Below(options_.jitter_us * kUs));
    if (Fault("late datagram", options_.late)) {
      delay += static_cast<int64_t>(random_.Below(300 * kMs));
    }
    machine_.At(delay, [bytes, arrives] { arrives(bytes); });
  }
}

void DirectSim::SendToReplica(size_t replica, std::string datagram) {
  Deliver(replicas_[replica]->deaf_until, std::move(datagram),
          [this, replica](const std::string& bytes) { Arrives(replica, bytes); });
}

void DirectSim::Arrives(size_t replica, const std::string& bytes) {
  ReplicaHost& host = *replicas_[replica];
  if (machine_.now() < host.stuck_until) {
    // The datagram waits in the socket's buffer.
    machine_.At(host.stuck_until - machine_.now(),
                [this, replica, bytes] { Arrives(replica, bytes); });
    return;
  }
  std::string answer = host.OnDatagram(machine_.now(), bytes);
  if (answer.empty()) return;
  Deliver(host.mute_until, std::move(answer), [this, replica](const std::string& got) {
    if (!recovering_) kernel_.Arrive(replica, got);
  });
}

absl::StatusOr<Opening> DirectSim::OpenAt(int replica, Epoch epoch, uint64_t session, Seq base) {
  ReplicaHost& host = *replicas_[static_cast<size_t>(replica)];
  if (!host.Reachable(machine_.now()) || machine_.now() < host.stuck_until ||
      Fault("open fails", options_.open_fails)) {
    return absl::UnavailableError("unreachable");
  }
  SessionParams params;
  params.volume = config_.volume;
  params.epoch = epoch;
  params.session = session;
  params.base = base;
  params.tau_ms = config_.tau_ms;
  params.k = config_.k;
  params.memory_bytes = 700 << 10;
  const auto opened = host.Open(machine_.now(), params);
  if (!host.broken_promise().empty()) {
    Break(absl::StrCat("I4: replica ", replica, " ", host.broken_promise()));
  }
  return opened;
}

// ---- replicas

uint32_t DirectSim::LostSince(Seq seq) const {
  uint32_t lost = 0;
  for (size_t i = 0; i < losses_.size(); ++i) lost |= (losses_[i].upto >= seq ? 1u : 0u) << i;
  return lost;
}

// Returns whether this loss keeps the contract of f: of no record that may still depend on replicas
// do f of them lose their memory, counted from its issue on.
bool DirectSim::LossAllowed(size_t replica) const {
  if (coordinator_ == nullptr) return false;
  const Seq issued = window_.window().issued();
  const Seq checkpoint = coordinator_->policy().checkpoint();
  if (!coordinator_->NeedsReplicas() && issued == checkpoint) return true;
  const Seq oldest = std::min(checkpoint + 1, issued);
  return static_cast<uint32_t>(std::popcount(LostSince(oldest) | 1u << replica)) < config_.acks;
}

void DirectSim::Restart(size_t replica) {
  replicas_[replica]->RestartProcess(machine_.now());
  Say("replica %d restarts with its memory", replica);
  TakeTimeToStart(replica);
}

void DirectSim::LoseMemory(size_t replica) {
  losses_[replica] = {.upto = std::max<Seq>(window_.window().issued(), 1), .unnoticed = true};
  const bool promises_too = Fault("promises lost with the memory", options_.lost_promises);
  replicas_[replica]->LoseMemory(machine_.now(), promises_too);
  ++outcome_.losses;
  Say("replica %d loses its memory", replica);
  TakeTimeToStart(replica);
}

void DirectSim::PutBackFaults(size_t replica) {
  if (!put_backs_ || coordinator_ == nullptr) return;
  ReplicaHost& host = *replicas_[replica];
  const Inventory held =
      host.acceptor().GetInventory(host.Clock(machine_.now()), config_.volume);
  // Only a memory of this session: an older one would forget a fence too.
  if (held.known && held.epoch == window_.header().epoch &&
      put_back_random_.Chance(options_.remember)) {
    host.Remember();
  }
  if (!host.remembers() || !put_back_random_.Chance(options_.put_back) || !LossAllowed(replica) ||
      !Happens("memory put back")) {
    return;
  }
  put_back_at_[replica] = window_.window().issued();
  losses_[replica] = {.upto = std::max<Seq>(window_.window().issued(), 1), .unnoticed = false};
  host.PutBack(machine_.now());
  ++outcome_.losses;
  Say("replica %d has an earlier memory", replica);
  TakeTimeToStart(replica);
}

bool DirectSim::NotesAMemoryPutBack() {
  for (const Member& member : NotedState().members) {
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

bool DirectSim::NamesLess(size_t replica, const std::string& datagram) const {
  const direct::Header& header = window_.header();
  const direct::Peer& peer = header.peers[replica];
  const direct::Heard& heard = header.heard[replica];
  const auto* const bytes = reinterpret_cast<const uint8_t*>(datagram.data());
  FrameHeader frame;
  AckBytes ack;
  if (DecodeFrameHeader(bytes, datagram.size(), &frame) != FrameFault::kNone ||
      frame.type != FrameType::kAck || frame.epoch != header.epoch ||
      frame.session != header.session ||
      DecodeAck(bytes + kFrameHeaderBytes, datagram.size() - kFrameHeaderBytes, &ack) !=
          FrameFault::kNone) {
    return false;
  }
  const auto sent = static_cast<int64_t>(frame.send_time_ns);
  return (ack.flags & ~kAckOverdue) == 0 && ack.incarnation == peer.incarnation &&
         ack.incarnation == heard.incarnation && heard.lost == 0 && sent >= peer.counts_from_ns &&
         sent > heard.contiguous_ns && ack.contiguous < heard.contiguous;
}

// It counts no more once the thread has handled the datagram, unless another one was heard
// meanwhile.
void DirectSim::Receives() {
  const auto found = going_back_.find(machine_.running().number);
  if (found == going_back_.end()) return;
  for (const GoesBack& each : found->second) {
    const direct::Heard& heard = window_.header().heard[each.replica];
    const direct::Peer& peer = window_.header().peers[each.replica];
    if (heard.lost == 0 && heard.incarnation == each.heard.incarnation &&
        heard.contiguous == each.heard.contiguous &&
        heard.contiguous_ns == each.heard.contiguous_ns &&
        peer.incarnation == each.peer.incarnation &&
        peer.counts_from_ns == each.peer.counts_from_ns) {
      Break(absl::StrCat("I5: replica ", each.replica, " names less than it did, and counts"));
    }
  }
  going_back_.erase(found);
}

void DirectSim::Received(size_t replica, const std::string& datagram) {
  if (!put_back_at_[replica].has_value() || !NamesLess(replica, datagram)) return;
  Count("names less than it did");
  going_back_[machine_.running().number].push_back(
      {replica, window_.header().heard[replica], window_.header().peers[replica]});
}

void DirectSim::TakeTimeToStart(size_t replica) {
  if (!Fault("slow restart", options_.slow_restart)) return;
  const int64_t time = static_cast<int64_t>(random_.Below(options_.restart_ms)) * kMs;
  ReplicaHost& host = *replicas_[replica];
  host.down_until = machine_.now() + time;
  host.deaf_until = std::max(host.deaf_until, host.down_until);
  host.mute_until = std::max(host.mute_until, host.down_until);
  machine_.At(time, [this, &host] { host.RestartProcess(machine_.now()); });
}

void DirectSim::CountUnnoticedLosses() {
  for (size_t i = 0; i < losses_.size(); ++i) {
    Loss& loss = losses_[i];
    const Incarnation known =
        coordinator_->policy().replica(static_cast<int>(i), machine_.now()).incarnation;
    // It may also learn of an earlier life only now, by a late answer.
    const bool unnoticed = known != 0 && known != replicas_[i]->acceptor().incarnation();
    if (std::exchange(loss.unnoticed, unnoticed) || unnoticed) {
      loss.upto = std::max(loss.upto, window_.window().issued());
    }
  }
}

void DirectSim::LastLosses() {
  CountUnnoticedLosses();
  if (!random_.Chance(options_.last_losses)) return;
  const uint64_t first = random_.Below(replicas_.size());
  for (size_t n = 0; n < replicas_.size(); ++n) {
    const size_t i = (first + n) % replicas_.size();
    if (LossAllowed(i) && Happens("amnesia right before the crash")) LoseMemory(i);
  }
}

void DirectSim::CutOff(int64_t longest_ns, bool all) {
  const int64_t until =
      machine_.now() + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(longest_ns)));
  const uint64_t way = random_.Below(3);
  const uint64_t one = random_.Below(replicas_.size());
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (!all && i != one) continue;
    if (way != 1) replicas_[i]->deaf_until = until;
    if (way != 0) replicas_[i]->mute_until = until;
  }
}

// Draws the faults of the next moment.
void DirectSim::Weather() {
  CountUnnoticedLosses();
  for (size_t i = 0; i < replicas_.size(); ++i) {
    ReplicaHost& host = *replicas_[i];
    if (Fault("partition", options_.partition)) CutOff(600 * kMs, false);
    if (Fault("stuck replica", options_.stuck)) {
      host.stuck_until = machine_.now() + static_cast<int64_t>(random_.Below(400)) * kMs;
    }
    if (Fault("replica restart", options_.restart)) Restart(i);
    if (random_.Chance(options_.amnesia) && LossAllowed(i) && Fault("amnesia", 1)) LoseMemory(i);
    PutBackFaults(i);
    const std::string wrong = host.Tick(machine_.now());
    if (!wrong.empty()) Break(absl::StrCat("I6: replica ", i, ": ", wrong));
  }
  if (Fault("all replicas cut off", options_.cut_off)) {
    CutOff(static_cast<int64_t>(options_.cut_off_ms) * kMs, true);
  }
  if (Fault("clock jump", options_.clock_jump)) {
    kernel_.SetClockOffset(static_cast<int64_t>(random_.Below(3600)) * 1000 * kMs);
  }
  if (Fault("write-back", options_.write_back)) {
    if (random_.Chance(0.5)) backing_.WriteBackJournal();
    backing_.WriteBackBlocks([this] { return random_.Chance(0.4); });
  }
  const auto living =
      std::count_if(programs_.begin(), programs_.end(),
                    [this](const auto& program) { return machine_.Lives(program->id); });
  if (!ending_ && (living == 0 || (living < options_.most_programs && random_.Chance(0.02)))) {
    StartProgram();
  }
}

// ---- the host

int64_t DirectSim::SyncTime() {
  const bool between =
      last_phase_ == direct::Phase::kGoingLocal || last_phase_ == direct::Phase::kStamping;
  if (Fault("slow disk", between ? options_.slow_change : options_.slow_disk)) {
    return static_cast<int64_t>(20 + random_.Below(800)) * kMs;
  }
  return static_cast<int64_t>(100 + random_.Below(4000)) * kUs;
}

bool DirectSim::SyncFails() { return Fault("sync error", options_.sync_error); }

bool DirectSim::NoteFails() { return Fault("note error", options_.note_error); }

void DirectSim::Changed(std::string_view mode, direct::Phase phase) {
  CountUnnoticedLosses();
  if (phase == last_phase_) return;
  Say("phase %d, mode %s, issued %d, checkpoint %d", static_cast<int>(phase), std::string(mode),
      window_.window().issued(), window_.window().checkpoint());
  if (phase == direct::Phase::kReplicated) Count("healed");
  if (phase == direct::Phase::kGoingLocal) Count("went local");
  if (phase == direct::Phase::kStamping && !calls_.empty()) Count("calls wait while healing");
  if (phase == direct::Phase::kGoingLocal && !calls_.empty()) Count("calls wait while going local");
  if (last_phase_ == direct::Phase::kStamping && phase == direct::Phase::kLocal) {
    Count("healing given up");
  }
  last_phase_ = phase;
}

// Counts the moments at which threads die.
void DirectSim::OnKill(const DirectMachine::Thread& thread) {
  calls_.erase(thread.number);
  writing_.erase(thread.number);
  going_back_.erase(thread.number);
  using_.erase(thread.number);
  if (recovering_) return;
  Say("thread %d dies, %s", thread.number, std::string(thread.doing));
  if (!thread.doing.empty()) Count(thread.doing);
  const bool coordinator = thread.process == coordinator_->process();
  for (pthread_mutex_t* const lock : thread.held) {
    if (lock == &window_.header().life.mutex) continue;
    if (lock == &window_.header().window_lock.mutex) {
      Count(coordinator ? "the coordinator dies with the window lock"
                        : "killed with the window lock");
      continue;
    }
    if (coordinator) continue;
    Count("killed with a stripe");
    for (Seq seq = window_.header().ready.load() + 1; seq <= window_.window().issued(); ++seq) {
      const direct::RecordSlot& record = window_.record(seq);
      if (record.ready.load() == 0 && &window_.stripe(record.file).lock.mutex == lock) {
        Count("killed with a reserved record");
      }
    }
  }
}

void DirectSim::MachineDies(bool power) {
  Say(power ? "power cut" : "the processes die");
  Count(power ? "power cut" : "the page cache outlives the processes");
  for (const auto& file : files_) file->fd = BackingFd();
  salius_ = BackingFd();
  backing_.OnEachCall(nullptr);
  if (!power) return backing_.EndProcess();
  if (random_.Chance(options_.journal)) backing_.WriteBackJournal();
  const double share = random_.Chance(options_.no_data)    ? 0
                       : random_.Chance(options_.all_data) ? 1
                                                           : random_.Below(100) / 100.0;
  backing_.WriteBackBlocks([&] { return random_.Chance(share); });
  backing_.PowerCut();
}

}  // namespace salius::sim
