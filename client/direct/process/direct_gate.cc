#include "client/direct/process/direct_gate.h"

#include <algorithm>
#include <cerrno>

#include "client/direct/window/system.h"
#include "client/direct/window/waits.h"
#include "client/gate/inside.h"

namespace salius::direct {
namespace {

// With records sent when an output waits, these many bytes are sent before.
constexpr uint64_t kBatchBytes = 256u << 10;

// A wait with a limit looks again after this time.
constexpr int64_t kBriefNs = 1'000'000;

bool Checkpointed(const SharedWindow& window, uint64_t epoch) {
  return window.header().clean_epoch.load() >= epoch;
}

bool Durable(const SharedWindow& window, uint64_t seq) { return window.durable() >= seq; }

}  // namespace

bool DirectGate::Pending() const {
  const Header& header = window_.header();
  return window_.durable() < window_.window().issued() ||
         header.promises.owed_epoch.load() > header.clean_epoch.load();
}

int DirectGate::Await() {
  Promises& promises = window_.header().promises;
  const Seq upto = window_.window().issued();
  const uint64_t owed = promises.owed_epoch.load();
  promises.outputs.fetch_add(1, std::memory_order_relaxed);
  if (!Checkpointed(window_, owed)) promises.paid_outputs.fetch_add(1, std::memory_order_relaxed);
  const int error = AwaitMarks(upto, owed, -1);
  if (error != 0) promises.refused.fetch_add(1, std::memory_order_relaxed);
  return error;
}

int DirectGate::AwaitMarks(Seq upto, uint64_t epoch, int64_t until_ns) {
  Header& header = window_.header();
  bool asked = false;
  for (;;) {
    const PhaseWord phase = window_.phase();
    if (Durable(window_, upto) && Checkpointed(window_, epoch)) return 0;
    if (phase.phase() == Phase::kFailed || phase.phase() == Phase::kEnded ||
        !acknowledged_.CoordinatorLives()) {
      return EIO;
    }
    if (!asked && !Checkpointed(window_, epoch)) {
      uint64_t wanted = header.epoch_wanted.load();
      while (wanted < epoch && !header.epoch_wanted.compare_exchange_weak(wanted, epoch)) {
      }
      Kick(window_, kTroubleCheckpoint);
      asked = true;
    }
    // A dead coordinator and a failed volume are found above.
    if (until_ns >= 0) {
      const int64_t now = MonotonicNs();
      if (now >= until_ns) return ETIMEDOUT;
      WaitBriefly(until_ns, now);
    } else if (!Durable(window_, upto) && phase.phase() == Phase::kReplicated) {
      acknowledged_.Wait(upto, phase);
    } else if (!Durable(window_, upto)) {
      acknowledged_.WaitForNews(phase, Durable, upto);
    } else {
      acknowledged_.WaitForNews(phase, Checkpointed, epoch);
    }
  }
}

void DirectGate::WaitBriefly(int64_t until_ns, int64_t now) const {
  const uint32_t news = News(window_);
  acknowledged_.SendReady();
  if (acknowledged_.Receive(false) > 0) return;
  // The coordinator receives while no process waits for the network.
  Kick(window_, kTroubleWaiting);
  SleepForNews(window_, news, 0, std::min(until_ns - now, kBriefNs));
}

void DirectGate::MakeInside(uint64_t device, uint64_t inode) {
  gate::Inside(window_.header().promises.inside).Add(device, inode);
}

bool DirectGate::Inside(uint64_t device, uint64_t inode) const {
  Promises& promises = window_.header().promises;
  return promises.passed.load() == 0 && gate::Inside(promises.inside).Has(device, inode);
}

void DirectGate::Passed() { window_.header().promises.passed.store(1); }

bool DirectGate::EndEarly(gate::EarlyEnd reason) {
  window_.header().promises.early_end.fetch_or(reason);
  return true;
}

void DirectGate::Owe() {
  Header& header = window_.header();
  // The change is in the page cache before this look, and the sync of that number begins after it.
  const uint64_t next = header.sync_epoch.load();
  uint64_t owed = header.promises.owed_epoch.load();
  while (owed < next && !header.promises.owed_epoch.compare_exchange_weak(owed, next)) {
  }
}

void DirectGate::Notice() {
  window_.header().promises.noticed.fetch_add(1);
  Owe();
}

uint64_t DirectGate::Noticed() const { return window_.header().promises.noticed.load(); }

void DirectGate::SendSoon() const {
  const Header& header = window_.header();
  const Window& slots = window_.window();
  const Seq sent = header.sent.load();
  const Seq issued = slots.issued();
  if (sent >= issued) return;
  if (header.promises.lazy.load(std::memory_order_relaxed) != 0 && sent >= slots.checkpoint() &&
      slots.BytesUpTo(issued) - slots.BytesUpTo(sent) < kBatchBytes) {
    return;
  }
  acknowledged_.SendReady();
}

void DirectGate::CountEarly(bool owed) const {
  Promises& promises = window_.header().promises;
  promises.early_syncs.fetch_add(1, std::memory_order_relaxed);
  if (owed) promises.owed_syncs.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace salius::direct
