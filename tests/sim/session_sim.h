// A deterministic simulation of one session from a seed: the shipping replicator against simulated
// replicas, network and disk, until the primary crashes. The rules of docs/recovery.md (quorum of
// noted members, stable log, cut at the first gap) then judge the state that recovery would find:
// - I1: it must contain every acknowledged record.
// - I6: no replica may have dropped more than the noted checkpoint.
// - I5: a lost memory must never have counted. Nor may one that went back to an earlier moment,
//   once an acknowledgement has shown that.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client/session/replicator.h"
#include "common/random.h"

namespace salius::sim {

struct SessionFaults {
  double loss = 0.05;  // per datagram
  double duplicate = 0.05;
  double partition = 0.002;    // per step: a replica is cut off for a while
  double amnesia = 0.003;      // per step: a replica loses its memory (within the limit of f)
  double put_back_runs = 0.3;  // per run: memories of earlier moments come back ...
  double put_back = 0.002;     // ... per step, under the same incarnation (within the limit of f)
  double remember = 0.02;      // ... as they were when they were remembered
  double memory_full = 0.001;  // per step: a replica refuses records for a while
  double slow_disk = 0.02;     // per disk job: takes very long
};

class SessionSim {
 public:
  SessionSim(uint64_t seed, const SessionFaults& faults);

  // Runs `steps` steps and crashes the primary. Returns "", or the broken guarantee and how it
  // broke.
  std::string RunAndCrash(int steps);
  // Runs `steps` steps with faults, then without. Returns "" when every issued record became
  // durable and the mode returned to replicated within the bound.
  std::string RunAndHeal(int steps);

  // Returns an order-sensitive digest of all events; the same seed gives the same digest.
  uint64_t digest() const { return digest_; }
  int mode_changes() const { return mode_changes_; }

 private:
  struct SimReplica {
    Incarnation incarnation = 1;
    bool session = false;
    Seq base = 0, trimmed = 0, contiguous = 0;
    std::set<Seq> held;
    bool full = false;
    int64_t full_until = 0, cut_off_until = 0;
    std::shared_ptr<const SimReplica> earlier;  // its memory at some moment of this session
    std::optional<Seq> put_back_at;             // highest seq issued when that was put back
    bool unnoticed = false;                     // the primary has not noticed that yet
  };
  // A replica's acknowledgements since it was opened.
  struct LastAck {
    int64_t opened_ns = 0, ns = 0;
    Seq contiguous = 0;
  };
  struct Event {
    enum Kind { kFrame, kAck, kOpen, kOpened, kStable, kSync, kNoteHits, kNoteReturns } kind;
    int replica = 0;
    Seq first = 0, last = 0;  // kFrame; kOpen: first = base; kSync: first = applied at its start
    Seq trim = 0;
    int64_t sent = 0;
    AckPayload ack;
    Incarnation incarnation = 0;
    std::vector<Seq> seqs;
    Note note;
  };

  void Step(bool faults_on);
  void Handle(const Event& event);
  void Drain();  // executes the replicator's outputs
  void Deliver(const Event& frame);
  void SendAck(int replica, int64_t echo, uint16_t flags);
  void After(int64_t delay, Event event) { queue_.emplace(now_ + delay, std::move(event)); }
  int64_t DiskTime();
  bool LossAllowed(int replica) const;
  void Amnesia(int replica);
  void PutBackFaults(int replica);
  void TakeAck(const Event& event);
  std::string Judge();
  void Mix(uint64_t value) {
    digest_ = (digest_ ^ value) * 0x9E3779B97F4A7C15ull + (digest_ >> 29);
  }

  Random random_;
  Random put_back_random_;
  bool put_backs_;
  std::string broken_;
  SessionFaults faults_;
  ReplicatorOptions options_;
  int64_t now_ = 1'000'000'000;
  std::multimap<int64_t, Event> queue_;
  const OwnedWindow window_;
  Replicator core_;
  std::vector<SimReplica> replicas_;
  std::vector<LastAck> last_acks_;
  std::set<Seq> stable_on_disk_;
  std::map<Seq, ReplicaMask> loss_;  // replicas that lost memory since the record was issued
  Note state_on_disk_;
  Seq acked_ = 0;
  bool frozen_faults_ = false;
  Incarnation next_incarnation_ = 100;
  uint64_t digest_ = 0;
  int mode_changes_ = 0;
  Mode last_mode_ = Mode::kLocal;
};

}  // namespace salius::sim
