// The gate of a direct volume, on the shared window.
//
// Two things are pending there. Records: everything up to `issued` that is not durable. And syncs
// that are owed: a change that no record vouches for (data of an uncovered file, a name, an
// attribute), and a sync of such a file that returned early, note the number of the coordinator's
// next sync. That sync begins after the change, so it covers it. An output waits until the sync has
// been made and noted.
//
// Needs the standard library, POSIX and ISA-L only; never allocates.
#pragma once

#include <cstdint>

#include "client/direct/process/acknowledged.h"
#include "client/direct/window/layout.h"
#include "client/gate/gate.h"

namespace salius::direct {

class DirectGate final : public gate::Gate {
 public:
  DirectGate() = default;
  DirectGate(const SharedWindow& window, const Acknowledged& acknowledged)
      : window_(window), acknowledged_(acknowledged) {}

  bool Pending() const override;
  int Await() override;
  // The present page cache must be on the disk before the next output.
  void Owe() override;
  void Notice() override;
  uint64_t Noticed() const override;
  void MakeInside(uint64_t device, uint64_t inode) override;
  bool Inside(uint64_t device, uint64_t inode) const override;
  void Passed() override;
  bool EndEarly(gate::EarlyEnd reason) override;

  // Waits until the records up to `upto` are durable, and the sync `epoch` has been made and noted.
  // `until_ns`: monotonic; -1: no limit. Returns 0, ETIMEDOUT, or EIO when it cannot become true.
  int AwaitMarks(Seq upto, uint64_t epoch, int64_t until_ns);

  // Returns whether sync calls may return early now.
  bool Early() const { return window_.header().promises.early_end.load() == 0; }
  // Sends the records that are complete, if that is due: at once, or when they are many.
  void SendSoon() const;
  void CountEarly(bool owed) const;

 private:
  // Waits for a short time at most, and receives.
  void WaitBriefly(int64_t until_ns, int64_t now) const;

  SharedWindow window_;
  Acknowledged acknowledged_;
};

}  // namespace salius::direct
