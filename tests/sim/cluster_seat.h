// A primary's place in the simulated cluster: its environment, and the keys of its session.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tests/sim/cluster_sim.h"
#include "tests/sim/sealed_ends.h"

namespace salius::sim {

// Once it is cleared, none of its primary's events happens any more.
class ClusterSim::Seat : public World, public std::enable_shared_from_this<Seat> {
 public:
  explicit Seat(ClusterSim& sim);
  void Clear() { taken_ = false; }
  void Sit(Primary* primary) { primary_ = primary; }
  // Has keys given and changed when that is due. Call it after each tick of the primary.
  void RefreshKeys();

  int64_t now() const override { return sim_.PrimaryClock(); }
  void At(int64_t delay, std::function<void()> what) override;
  int64_t DiskTime() override;
  DiskTrouble JobTrouble() override;
  bool SyncFails() override;
  bool ApplyFails() override;
  bool WriteBackFails() override;
  bool LastSyncFails() override;
  bool NoRoomFor(const RecordHeader& header) override;
  Random& random() override { return sim_.random_; }
  uint64_t Realtime() override;
  std::string Seal(std::string frame) override;
  void SendToReplica(int replica, std::string datagram) override;
  void OpenSession(int replica, Epoch epoch, uint64_t session, Seq base) override;

 private:
  void Arrives(int replica, const std::string& datagram, bool late = false);
  void Hears(int replica, const std::string& datagram);
  void CallOpen(int replica, Epoch epoch, uint64_t session, Seq base);
  void GiveKey(int replica);
  void TakeAnswer(int replica, const KeyOffer& offer, Incarnation incarnation,
                  const absl::StatusOr<Opening>& given);

  ClusterSim& sim_;
  Primary* primary_ = nullptr;
  bool taken_ = true;
  std::optional<PrimarySeal> seal_;  // empty: datagrams are plain
};

}  // namespace salius::sim
