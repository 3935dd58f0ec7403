// Shared by the replicator's tests: a core, a clock, and all outputs of the core.
#pragma once

#include <gtest/gtest.h>

#include <optional>

#include "client/session/replicator.h"

namespace salius {

inline constexpr int64_t kMs = 1'000'000;

class ReplicatorTest : public testing::Test {
 protected:
  void Make(int replicas, int acks, Seq few = 0) {
    ReplicatorOptions options;
    options.few = few;
    options.noticed = noticed_;
    options.output_triggered = output_triggered_;
    options.replicas = replicas;
    options.acks = acks;
    options.delta_ns = 50 * kMs;
    options.tau_ns = 1000 * kMs;
    options.k = 2;
    options.log_max_bytes = 1 << 20;
    core_.reset();
    window_ = NewWindow(Replicator::WindowSlots(options.log_max_bytes));
    core_.emplace(options, *window_, now_);
    out_ = {};
  }
  void Take() {
    Replicator::Outputs out = core_->TakeOutputs();
    for (const auto& open : out.opens) out_.opens.push_back(open);
    for (const auto& send : out.sends) out_.sends.push_back(send);
    for (const auto& event : out.events) out_.events.push_back(event);
    if (out.note) out_.note = out.note;
    if (out.start_sync) out_.start_sync = true;
    if (out.pass_stripes) out_.pass_stripes = true;
    if (out.cut) out_.cut = out.cut;
    out_.stable_wanted = out.stable_wanted;
  }
  void Tick(int64_t ms) {
    now_ += ms * kMs;
    core_->Tick(now_);
    Take();
  }
  void Ack(int replica, Seq contiguous, uint16_t flags = 0, Incarnation incarnation = 0) {
    AckPayload ack;
    ack.incarnation = incarnation != 0 ? incarnation : 100 + replica;
    ack.base = 1;
    ack.contiguous = contiguous;
    ack.free_bytes = 64 << 20;
    ack.flags = flags;
    core_->OnAck(now_, replica, kMs / 10, ack);
    Take();
  }
  // Opens all replicas and notes replicated.
  void Heal(int replicas) {
    Tick(1);
    for (int i = 0; i < replicas; ++i) core_->OnOpened(now_, i, 100 + i, 7000 + i, 1, 64 << 20);
    Take();
    for (int i = 0; i < replicas; ++i) Ack(i, 0);
    while (out_.note) {
      out_.note.reset();
      core_->OnNoteWritten(now_, absl::OkStatus());
      Take();
    }
    ASSERT_TRUE(core_->counting_acks());
  }
  void WriteStable() {
    core_->OnStable(now_, core_->TakeStableBatch(1 << 20), absl::OkStatus());
    Take();
  }
  Seq Issue() {
    const Seq seq = core_->Issue(now_, 1000);
    Take();
    return seq;
  }

  // Writes every note that the core asks for.
  void Settle() {
    while (out_.note) {
      out_.note.reset();
      core_->OnNoteWritten(now_, absl::OkStatus());
      Take();
    }
  }
  // Opens a replica that lost its memory again, with the promises of `store`.
  void Reborn(int replica, Incarnation life, StoreId store) {
    Ack(replica, 0, 0, life);
    Settle();
    Tick(1);
    core_->OnOpened(now_, replica, life, store, 1, 64 << 20);
    Take();
  }

  // Returns whether the replica does not count because it may have forgotten a promise.
  bool InDoubt(int replica) const {
    return core_->replica(replica, now_).problem.find("promises") != std::string::npos;
  }

  bool noticed_ = false;  // ReplicatorOptions::noticed of the next Make
  bool output_triggered_ = false;  // likewise
  int64_t now_ = 1'000'000'000;
  OwnedWindow window_;
  std::optional<Replicator> core_;
  Replicator::Outputs out_;
};

}  // namespace salius
