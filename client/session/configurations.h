// The configurations of a session: the noted one, the one that is being noted, and what a record
// needs under each (docs/protocol.md, "Notes"; I1, I5). A configuration is a mode, a checkpoint and
// members.
//
// A record is *recoverable* under a configuration when it is at or below the checkpoint, or in the
// stable log, or - configuration replicated - held by f of its effective members. A member is
// effective while no loss of it was detected since the note that named it was started.
//
// The one rule: `durable` moves over a record only when it is recoverable under the noted
// configuration and, while a note is being written, under that note's configuration too; a note
// starts only when every durable record is recoverable under it. While one of the two names a
// member that was lost nothing becomes durable, not even by the disk: a recovery would use that
// note and need |members| - f + 1 of the members that it names. It would find one too few when
// another f - 1 were lost from the record's issue on.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "client/session/durable_rule.h"
#include "client/session/window.h"
#include "common/ids.h"
#include "common/limits.h"
#include "log/state_file.h"

namespace salius {

// The content of a note (the parts that this machine decides).
struct Note {
  Mode mode = Mode::kLocal;
  Seq checkpoint = 0;
  ReplicaMask members = 0;
  std::array<Incarnation, kMaxReplicas> incarnation{};
  std::array<Seq, kMaxReplicas> base{};
};

// A note with what is known about its members' memories and promises when it is started.
struct Configuration : Note {
  std::array<uint32_t, kMaxReplicas> losses{};
  std::array<StoreId, kMaxReplicas> store{};
};

class Configurations {
 public:
  // `window`: outlives this object. `acks`: f.
  Configurations(const Window& window, int acks) : window_(window), acks_(acks) {}

  // ---- the replicas' memories
  // Returns the incarnation that the replica was opened with; 0 when its memory was lost.
  Incarnation incarnation(int replica) const { return incarnation_[replica]; }
  void SetIncarnation(int replica, Incarnation incarnation) { incarnation_[replica] = incarnation; }
  // Notes a loss of the replica: no configuration that was made before counts it.
  void CountLoss(int replica) { ++losses_[replica]; }
  // Names `replica` as a member in `config`, with its present memory.
  void AddMember(int replica, Configuration* config) const;

  // ---- the notes
  const Configuration& noted() const { return noted_; }
  const std::optional<Configuration>& pending() const { return pending_; }
  // Returns the last noted configuration of mode replicated.
  const std::optional<Configuration>& replicated() const { return replicated_; }
  // Takes the note as being written. None may be pending, and every durable record is recoverable
  // under it.
  void Start(const Configuration& config);
  // Takes the pending note as written.
  void Written();

  // Returns the effective members of the configuration.
  ReplicaMask Effective(const Configuration& config) const;
  // Returns those of the noted one; of the noted and the pending one.
  ReplicaMask members() const { return Effective(noted_); }
  ReplicaMask all_members() const;
  // Returns whether a note without a lost member is awaited: until then nothing becomes durable.
  bool AwaitsNoteOfLoss() const;

  // Returns whether the record is recoverable under the noted configuration.
  bool Recoverable(Seq seq) const {
    return Side(noted_, members()).Recoverable(window_, seq, acks_);
  }
  // Returns whether all records up to `durable` are recoverable under `config`.
  bool AllRecoverable(const Configuration& config, Seq durable) const;
  // Returns the rule when a record is durable. `counting`: whether acknowledgements count under the
  // noted configuration.
  DurableRule Rule(bool counting) const;
  // Returns the last record that is durable by that rule, when all up to `durable` are.
  Seq Advance(Seq durable, bool counting) const { return Rule(counting).Advance(window_, durable); }

 private:
  bool NamesALostOne(const Configuration& config) const;
  // `counted`: the members whose copies count.
  static DurableRule::Side Side(const Configuration& config, ReplicaMask counted) {
    return {config.checkpoint, counted, config.mode == Mode::kReplicated};
  }

  const Window& window_;
  const int acks_;
  std::array<Incarnation, kMaxReplicas> incarnation_{};
  std::array<uint32_t, kMaxReplicas> losses_{};  // each grows with every detected loss
  Configuration noted_;                          // mode local at first
  std::optional<Configuration> pending_;
  std::optional<Configuration> replicated_;
};

}  // namespace salius
