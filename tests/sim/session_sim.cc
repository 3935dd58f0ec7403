#include "tests/sim/session_sim.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace salius::sim {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kRecordBytes = 4096;

ReplicaMask Bit(int replica) { return static_cast<ReplicaMask>(1u << replica); }

ReplicatorOptions MakeOptions(Random& random) {
  ReplicatorOptions options;
  options.replicas = 1 + static_cast<int>(random.Below(4));
  options.acks = 1 + static_cast<int>(random.Below(options.replicas));
  options.delta_ns = 20 * kMs;
  options.tau_ns = 2000 * kMs;
  options.k = 2;
  options.log_max_bytes = 256 * kRecordBytes;
  return options;
}

}  // namespace

SessionSim::SessionSim(uint64_t seed, const SessionFaults& faults)
    : random_(seed),
      put_back_random_(~seed),
      put_backs_(put_back_random_.Chance(faults.put_back_runs)),
      faults_(faults),
      options_(MakeOptions(random_)),
      window_(NewWindow(Replicator::WindowSlots(options_.log_max_bytes))),
      core_(options_, *window_, now_) {
  last_acks_.resize(options_.replicas);
  replicas_.resize(options_.replicas);
  for (SimReplica& replica : replicas_) replica.incarnation = next_incarnation_++;
}

int64_t SessionSim::DiskTime() {
  if (!frozen_faults_ && random_.Chance(faults_.slow_disk)) {
    return static_cast<int64_t>(50 + random_.Below(2000)) * kMs;
  }
  return static_cast<int64_t>(1 + random_.Below(8)) * kMs;
}

// Returns whether this loss keeps the contract of f. For no record that may still depend on
// replicas may f of them lose their memory, counted from its issue on.
bool SessionSim::LossAllowed(int replica) const {
  for (Seq seq = state_on_disk_.checkpoint + 1; seq <= core_.issued(); ++seq) {
    if (stable_on_disk_.count(seq)) continue;
    const auto found = loss_.find(seq);
    const ReplicaMask lost = found == loss_.end() ? 0 : found->second;
    if (std::popcount(static_cast<ReplicaMask>(lost | Bit(replica))) > options_.acks - 1)
      return false;
  }
  return true;
}

void SessionSim::Amnesia(int index) {
  for (Seq seq = state_on_disk_.checkpoint + 1; seq <= core_.issued(); ++seq)
    loss_[seq] |= Bit(index);
  SimReplica& replica = replicas_[index];
  replica = SimReplica();
  replica.incarnation = next_incarnation_++;
  Mix(replica.incarnation);
}

void SessionSim::PutBackFaults(int index) {
  if (!put_backs_) return;
  SimReplica& replica = replicas_[index];
  if (replica.session && put_back_random_.Chance(faults_.remember)) {
    auto earlier = std::make_shared<SimReplica>(replica);
    earlier->earlier.reset();
    replica.earlier = std::move(earlier);
  }
  if (replica.earlier == nullptr || !put_back_random_.Chance(faults_.put_back) ||
      !LossAllowed(index)) {
    return;
  }
  for (Seq seq = state_on_disk_.checkpoint + 1; seq <= core_.issued(); ++seq)
    loss_[seq] |= Bit(index);
  const std::shared_ptr<const SimReplica> earlier = replica.earlier;
  replica = *earlier;
  replica.earlier = earlier;
  replica.put_back_at = core_.issued();
  replica.unnoticed = true;
  Mix(core_.issued());
}

// Applies the rule itself: it compares with acknowledgements that had arrived before the answered
// frame was sent.
void SessionSim::TakeAck(const Event& event) {
  LastAck& last = last_acks_[event.replica];
  const AckPayload& ack = event.ack;
  const Incarnation known = core_.replica(event.replica, now_).incarnation;
  const bool counts = known == ack.incarnation && (ack.flags & kAckUnknownSession) == 0 &&
                      event.sent >= last.opened_ns;
  const bool must_notice = counts && ack.contiguous < last.contiguous && event.sent > last.ns;
  if (counts && ack.contiguous > last.contiguous) {
    last.contiguous = ack.contiguous;
    last.ns = now_;
  }
  core_.OnAck(now_, event.replica, now_ - event.sent, ack);
  if (must_notice && core_.replica(event.replica, now_).incarnation == known) {
    broken_ = absl::StrCat("I5: replica ", event.replica, " named ", last.contiguous, " and now ",
                           ack.contiguous, ", and counts");
  }
}

void SessionSim::SendAck(int index, int64_t echo, uint16_t flags) {
  const SimReplica& replica = replicas_[index];
  Event event{Event::kAck};
  event.replica = index;
  event.sent = echo;
  AckPayload& ack = event.ack;
  ack.incarnation = replica.incarnation;
  ack.flags = flags;
  ack.free_bytes = replica.full ? 0 : 64u << 20;
  if (replica.session) {
    ack.base = replica.base;
    ack.contiguous = replica.contiguous;
    ack.trimmed = replica.trimmed;
    for (Seq seq : replica.held) {
      if (seq <= replica.contiguous) continue;
      if (!ack.ranges.empty() && ack.ranges.back().last + 1 == seq) {
        ack.ranges.back().last = seq;
      } else if (ack.ranges.size() < kMaxAckRanges) {
        ack.ranges.push_back({seq, seq});
      }
    }
  }
  if (now_ < replica.cut_off_until) return;
  if (!frozen_faults_ && random_.Chance(faults_.loss)) return;
  const int64_t delay = static_cast<int64_t>(random_.Below(2 * kMs)) + 10'000;
  After(delay, event);
  if (!frozen_faults_ && random_.Chance(faults_.duplicate)) {
    After(delay + static_cast<int64_t>(random_.Below(200 * kMs)), event);
  }
}

void SessionSim::Deliver(const Event& frame) {
  SimReplica& replica = replicas_[frame.replica];
  if (now_ < replica.cut_off_until) return;
  if (!replica.session) {
    SendAck(frame.replica, frame.sent, kAckUnknownSession);
    return;
  }
  uint16_t flags = 0;
  for (Seq seq = frame.first; seq <= frame.last && frame.first != 0; ++seq) {
    if (seq < replica.base || seq <= replica.trimmed) continue;
    if (replica.full) {
      flags |= kAckMemoryFull;
    } else {
      replica.held.insert(seq);
    }
  }
  if (frame.trim > replica.trimmed) {
    replica.trimmed = frame.trim;
    replica.held.erase(replica.held.begin(), replica.held.upper_bound(frame.trim));
  }
  replica.contiguous = std::max({replica.contiguous, replica.trimmed, replica.base - 1});
  while (replica.held.count(replica.contiguous + 1)) ++replica.contiguous;
  SendAck(frame.replica, frame.sent, flags);
}

void SessionSim::Handle(const Event& event) {
  Mix(static_cast<uint64_t>(event.kind) * 1000 + event.first);
  switch (event.kind) {
    case Event::kFrame:
      Deliver(event);
      break;
    case Event::kAck:
      TakeAck(event);
      break;
    case Event::kOpen: {
      SimReplica& replica = replicas_[event.replica];
      Event answer{Event::kOpened};
      answer.replica = event.replica;
      answer.first = event.first;
      if (now_ >= replica.cut_off_until) {
        if (!replica.session) {
          replica.session = true;
          replica.base = event.first;
          replica.contiguous = event.first - 1;
        }
        answer.incarnation = replica.incarnation;
      }
      After(kMs, answer);
      break;
    }
    case Event::kOpened:
      if (event.incarnation != 0) {
        // Its promises survive its memory.
        core_.OnOpened(now_, event.replica, event.incarnation, 1 + event.replica, event.first,
                       64u << 20);
        last_acks_[event.replica] = {.opened_ns = now_};
      } else {
        core_.OnOpenFailed(now_, event.replica, "unreachable", false);
      }
      break;
    case Event::kStable:
      for (Seq seq : event.seqs) stable_on_disk_.insert(seq);
      core_.OnStable(now_, event.seqs, absl::OkStatus());
      break;
    case Event::kSync:
      core_.OnSynced(now_, event.first, absl::OkStatus());
      break;
    case Event::kNoteHits:
      state_on_disk_ = event.note;
      if (event.note.mode != last_mode_) ++mode_changes_;
      last_mode_ = event.note.mode;
      break;
    case Event::kNoteReturns:
      core_.OnNoteWritten(now_, absl::OkStatus());
      break;
  }
}

void SessionSim::Drain() {
  while (true) {
    Replicator::Outputs out = core_.TakeOutputs();
    for (const Replicator::SendRange& send : out.sends) {
      for (Seq seq = send.first; seq <= send.last; seq += 4) {
        Event frame{Event::kFrame};
        frame.replica = send.replica;
        frame.first = seq;
        frame.last = std::min(seq + 3, send.last);
        frame.trim = core_.checkpoint();
        frame.sent = now_;
        if (!frozen_faults_ && random_.Chance(faults_.loss)) continue;
        After(static_cast<int64_t>(random_.Below(2 * kMs)) + 10'000, frame);
        if (!frozen_faults_ && random_.Chance(faults_.duplicate)) {
          After(static_cast<int64_t>(random_.Below(100 * kMs)), frame);
        }
      }
    }
    for (int i = 0; i < options_.replicas; ++i) {
      if (!(out.probes & Bit(i))) continue;
      Event probe{Event::kFrame};
      probe.replica = i;
      probe.trim = core_.checkpoint();
      probe.sent = now_;
      After(static_cast<int64_t>(random_.Below(kMs)) + 10'000, probe);
    }
    for (const Replicator::OpenRequest& open : out.opens) {
      Event event{Event::kOpen};
      event.replica = open.replica;
      event.first = open.base;
      After(static_cast<int64_t>(random_.Below(5 * kMs)), event);
    }
    if (out.note) {
      // The note reaches the disk some time before the write returns: a crash in between leaves it.
      Event hits{Event::kNoteHits};
      hits.note = *out.note;
      Event returns{Event::kNoteReturns};
      const int64_t hit = DiskTime();
      After(hit, hits);
      After(hit + DiskTime(), returns);
    }
    if (out.start_sync) {
      Event sync{Event::kSync};
      sync.first = core_.applied();
      After(DiskTime(), sync);
    }
    if (out.cut) {
      stable_on_disk_.erase(stable_on_disk_.begin(), stable_on_disk_.upper_bound(*out.cut));
    }
    if (out.stable_wanted) {
      Event stable{Event::kStable};
      stable.seqs = core_.TakeStableBatch(16 * kRecordBytes);
      if (!stable.seqs.empty()) After(DiskTime(), stable);
    }
    acked_ = std::max(acked_, core_.durable());
    if (core_.applied() < core_.durable() && random_.Chance(0.7)) core_.OnApplied(core_.durable());
    if (!out.durable_advanced && !out.note && out.sends.empty()) return;
  }
}

void SessionSim::Step(bool faults_on) {
  frozen_faults_ = !faults_on;
  const uint64_t roll = random_.Below(100);
  if (roll < 40 && core_.CanIssue(now_, kRecordBytes)) {
    const Seq seq = core_.Issue(now_, kRecordBytes);
    // A loss that is not noticed yet counts as one after it.
    for (int i = 0; i < options_.replicas; ++i) {
      const Incarnation known = core_.replica(i, now_).incarnation;
      if (known == 0) replicas_[i].unnoticed = false;
      if (known != 0 && (known != replicas_[i].incarnation || replicas_[i].unnoticed)) {
        loss_[seq] |= Bit(i);
      }
    }
    Drain();
  }
  if (faults_on) {
    for (int i = 0; i < options_.replicas; ++i) {
      SimReplica& replica = replicas_[i];
      if (random_.Chance(faults_.partition)) {
        replica.cut_off_until = now_ + static_cast<int64_t>(random_.Below(1500)) * kMs;
      }
      if (random_.Chance(faults_.memory_full)) {
        replica.full = true;
        replica.full_until = now_ + static_cast<int64_t>(random_.Below(500)) * kMs;
      }
      if (random_.Chance(faults_.amnesia) && LossAllowed(i)) Amnesia(i);
      PutBackFaults(i);
    }
  }
  for (SimReplica& replica : replicas_) {
    if (!faults_on) replica.cut_off_until = 0;
    if (replica.full && (now_ >= replica.full_until || !faults_on)) replica.full = false;
  }
  // Advance the time: to the next event, a little, or by a long pause.
  int64_t target = now_ + static_cast<int64_t>(random_.Below(3 * kMs));
  if (random_.Chance(0.01)) target = now_ + static_cast<int64_t>(random_.Below(300 * kMs));
  while (!queue_.empty() && queue_.begin()->first <= target) {
    now_ = std::max(now_, queue_.begin()->first);
    const Event event = queue_.begin()->second;
    queue_.erase(queue_.begin());
    Handle(event);
    Drain();
  }
  now_ = target;
  core_.Tick(now_);
  Drain();
}

// Judges the state that recovery would find now.
std::string SessionSim::Judge() {
  const Note& state = state_on_disk_;
  std::set<Seq> available = stable_on_disk_;
  if (state.mode == Mode::kReplicated) {
    const int members = std::popcount(state.members);
    const int quorum = members - options_.acks + 1;
    if (members < options_.acks) return "I1: a replicated note names fewer than f members";
    // A recovery cannot detect a memory that was put back and is noted as if it had not been.
    for (int i = 0; i < options_.replicas; ++i) {
      const SimReplica& replica = replicas_[i];
      if ((state.members & Bit(i)) && replica.put_back_at.has_value() &&
          replica.incarnation == state.incarnation[i] && state.base[i] <= *replica.put_back_at) {
        return "";
      }
    }
    std::vector<int> intact;
    for (int i = 0; i < options_.replicas; ++i) {
      if (!(state.members & Bit(i))) continue;
      if (replicas_[i].incarnation == state.incarnation[i] &&
          state.base[i] <= state.checkpoint + 1) {
        intact.push_back(i);
      }
    }
    if (static_cast<int>(intact.size()) < quorum) {
      // Recovery refuses loudly. It may if f members were lost for every acknowledged record.
      for (Seq seq = state.checkpoint + 1; seq <= acked_; ++seq) {
        const auto found = loss_.find(seq);
        const ReplicaMask lost = found == loss_.end() ? 0 : found->second & state.members;
        if (std::popcount(lost) <= options_.acks - 1) {
          return absl::StrCat("I1: fewer than f members were lost since ", seq,
                              " was issued, yet recovery would refuse");
        }
      }
      return "";
    }
    // The worst case: only a quorum answers, whichever it is.
    while (static_cast<int>(intact.size()) > quorum) {
      intact.erase(intact.begin() + static_cast<long>(random_.Below(intact.size())));
    }
    for (int i : intact) {
      if (replicas_[i].trimmed > state.checkpoint) {
        return absl::StrCat("I6: replica ", i, " dropped up to ", replicas_[i].trimmed,
                            ", the state's checkpoint is ", state.checkpoint);
      }
      available.insert(replicas_[i].held.begin(), replicas_[i].held.end());
    }
  }
  Seq last = state.checkpoint;
  while (available.count(last + 1)) ++last;
  if (last < acked_) {
    return absl::StrCat("I1: acknowledged up to ", acked_, ", recovery finds only ", last,
                        " (mode ", std::string(ModeName(state.mode)), ", checkpoint ",
                        state.checkpoint, ")");
  }
  return "";
}

std::string SessionSim::RunAndCrash(int steps) {
  for (int i = 0; i < steps; ++i) Step(true);
  if (!broken_.empty()) return broken_;
  if (!core_.failure().ok()) return absl::StrCat("failed: ", core_.failure().ToString());
  Mix(acked_);
  return Judge();
}

std::string SessionSim::RunAndHeal(int steps) {
  for (int i = 0; i < steps; ++i) Step(true);
  for (int i = 0; i < 20000; ++i) {
    Step(false);
    if (core_.counting_acks() && core_.durable() == core_.issued() &&
        std::popcount(core_.noted().members) == options_.replicas) {
      return "";
    }
  }
  return absl::StrCat("no healing: durable ", core_.durable(), " of ", core_.issued(), ", ",
                      core_.ModeDetail(now_));
}

}  // namespace salius::sim
