// The records of a direct volume, for the policy: the shared window as the session core sees it.
// Each step of the policy runs under the window lock, so that no process stamps, claims or counts
// between the notice and the publication. So counting stops first, for all processes at once.
//
// No thread, socket or clock: a simulator drives it as the coordinator does.
#pragma once

#include <array>
#include <optional>

#include "client/direct/window/layout.h"
#include "client/direct/window/robust_lock.h"
#include "client/session/foreign_records.h"
#include "common/ids.h"
#include "common/limits.h"
#include "common/net.h"

namespace salius::direct {

class SharedRecords final : public ForeignRecords {
 public:
  explicit SharedRecords(const SharedWindow& window) : window_(window) {}

  // Sets the address to which frames of replica `index` go; null: it has none. Takes effect with
  // the next step. Serialised with the steps.
  void SetAddress(size_t index, const salius::SocketAddress* address);
  // Publishes that the session ended cleanly.
  void End();

  Window& window() override { return window_.window(); }
  FileId Enter(int64_t now, Replicator& policy, PeerPaths& paths) override;
  void Leave(const Replicator& policy, const PeerPaths& paths, FileId file_id_limit) override;
  RecordRef At(Seq seq) const override;
  uint64_t last_timestamp_ns() const override { return window_.header().last_timestamp_ns; }

 private:
  // Gives the paths notice of all transmissions since the last call. Records that arrive only when
  // they are sent again were too large for the path (an "MTU black hole").
  void NoticeClaims(PeerPaths& paths);
  void PublishPeer(size_t index, const Replicator& policy, const PeerPaths& paths);
  // Returns whether the phase changed.
  bool PublishPhase(Phase phase);

  const SharedWindow window_;
  std::optional<WindowLock> lock_;  // from Enter to Leave
  std::array<salius::SocketAddress, kMaxReplicas> addresses_{};
  int64_t now_ = 0;      // of the step: monotonic ns
  Seq claims_upto_ = 0;  // noticed so far
};

}  // namespace salius::direct
