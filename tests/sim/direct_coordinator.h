// The coordinator of a simulated direct volume: the shipping session core, policy rounds and records
// of the shared window. Threads of the simulated host take the place of those of
// client/direct/coordinator/coordinator.cc.
//
// Threads: one, with fibers (tests/sim/direct_machine.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "client/direct/coordinator/policy_round.h"
#include "client/direct/coordinator/shared_records.h"
#include "client/session/session_core.h"
#include "log/state_file.h"
#include "storage/volume_config.h"
#include "tests/sim/direct_kernel.h"
#include "tests/sim/direct_machine.h"
#include "tests/sim/replica_host.h"

namespace salius::sim {

class DirectCoordinator : private direct::PolicyRound::Session {
 public:
  // The session's environment.
  class World : public DirectKernel::World {
   public:
    virtual int64_t NoteTime() = 0;  // of the next state note, ns
    virtual bool NoteFails() = 0;    // the next one
    virtual int64_t OpenTime() = 0;  // of one way of a control call, ns
    virtual absl::StatusOr<Opening> OpenAt(int replica, Epoch epoch, uint64_t session,
                                           Seq base) = 0;
    // Takes notice of a changed phase or mode.
    virtual void Changed(std::string_view mode, direct::Phase phase) = 0;
  };

  // `window`: formatted, of this session. `state`: clean. All outlive it.
  DirectCoordinator(DirectMachine& machine, DirectKernel& kernel, World& world,
                    const VolumeConfig& config, const direct::SharedWindow& window, StateFile state,
                    uint64_t session, FileId file_id_block);

  // Notes the new session, and starts the threads.
  absl::Status Begin();
  // Drains the session when `may_drain` holds, as Coordinator::Stop does. drained() says when that
  // is done.
  void DrainWhen(std::function<bool()> may_drain);
  bool drained() const { return drained_; }
  // Returns how far the drain is, for people.
  std::string DrainState() const;

  DirectMachine::ProcessId process() const { return process_; }
  const Replicator& policy() const { return core_.policy(); }
  Epoch epoch() const { return core_.key().epoch; }
  // Returns whether a replica's copy may make a record durable, now or under the note that is being
  // written.
  bool NeedsReplicas() const { return policy().noted().mode != Mode::kLocal || noting_; }
  // Returns how often the mode changed.
  uint64_t mode_changes() const { return mode_changes_; }
  // Returns how the published state contradicts the mode shown (I10); empty when it does not.
  const std::string& dishonest() const { return dishonest_; }

 private:
  // PolicyRound::Session
  void Feed(int64_t now, const Input& input) override;
  bool TakeStripesWanted() override { return std::exchange(stripes_wanted_, false); }
  int socket() const override { return DirectKernel::kSocketFd; }

  void FeedNow(const Input& input);
  void Send(const SendJob& job);
  void Open(const Replicator::OpenRequest& request);
  void Main();
  void PolicyLoop();
  void SyncLoop();
  void NoteLoop();
  void Drain();
  void CheckMode();

  DirectMachine& machine_;
  DirectKernel& kernel_;
  World& world_;
  const VolumeConfig& config_;
  const direct::SharedWindow window_;
  const DirectMachine::ProcessId process_;
  const uint64_t session_;
  const FileId file_id_block_;
  StateFile state_;
  direct::SharedRecords records_;
  SessionCore core_;
  direct::PolicyRound round_;
  ThreadLock mu_;  // of the core and what follows
  bool stripes_wanted_ = false, sync_wanted_ = false, noting_ = false;
  std::optional<VolumeState> note_wanted_;
  std::function<bool()> may_drain_;
  bool stopping_ = false, drained_ = false;
  int loops_ = 0;  // threads that run one
  std::string_view mode_;
  uint64_t mode_changes_ = 0;
  std::string dishonest_;
};

}  // namespace salius::sim
