// Single rules of the replicator, step by step; whole histories are in tests/sim.
#include "client/engine/replicator.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace salius {
namespace {

constexpr int64_t kMs = 1'000'000;

class ReplicatorTest : public testing::Test {
 protected:
  void Make(int replicas, int acks, Seq few = 0) {
    ReplicatorOptions options;
    options.few = few;
    options.replicas = replicas;
    options.acks = acks;
    options.delta_ns = 50 * kMs;
    options.tau_ns = 1000 * kMs;
    options.k = 2;
    options.log_max_bytes = 1 << 20;
    core_.emplace(options, now_);
    out_ = {};
  }
  void Take() {
    Replicator::Outputs out = core_->TakeOutputs();
    for (const auto& open : out.opens) out_.opens.push_back(open);
    for (const auto& send : out.sends) out_.sends.push_back(send);
    if (out.note) out_.note = out.note;
    if (out.start_sync) out_.start_sync = true;
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
    for (int i = 0; i < replicas; ++i) core_->OnOpened(now_, i, 100 + i, 1, 64 << 20);
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

  int64_t now_ = 1'000'000'000;
  std::optional<Replicator> core_;
  Replicator::Outputs out_;
};

TEST_F(ReplicatorTest, AcksDoNotCountBeforeTheReplicatedNoteHasReturned) {
  Make(2, 1);
  Tick(1);
  core_->OnOpened(now_, 0, 100, 1, 64 << 20);
  Take();
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->mode, Mode::kReplicated);
  Issue();
  Ack(0, 1);
  EXPECT_EQ(core_->durable(), 0u);
  core_->OnNoteWritten(now_, absl::OkStatus());
  EXPECT_EQ(core_->durable(), 1u);
}

TEST_F(ReplicatorTest, FAcksMakeARecordDurableAndFMinusOneDoNot) {
  Make(3, 2);
  Heal(3);
  Issue();
  Ack(0, 1);
  EXPECT_EQ(core_->durable(), 0u);
  Ack(0, 1);
  EXPECT_EQ(core_->durable(), 0u) << "the same replica twice is one copy";
  Ack(2, 1);
  EXPECT_EQ(core_->durable(), 1u);
}

TEST_F(ReplicatorTest, ARecordIsDurableOnlyWithAllBeforeIt) {
  Make(1, 1);
  Heal(1);
  Issue();
  Issue();
  AckPayload ack;
  ack.incarnation = 100;
  ack.base = 1;
  ack.contiguous = 0;
  ack.free_bytes = 64 << 20;
  ack.ranges = {{2, 2}};
  core_->OnAck(now_, 0, kMs, ack);
  EXPECT_EQ(core_->durable(), 0u);
  Ack(0, 2);
  EXPECT_EQ(core_->durable(), 2u);
}

using Ranges = std::vector<std::pair<Seq, Seq>>;

class GatherTest : public ReplicatorTest {
 protected:
  Seq Issue(SendWhen when, uint64_t bytes = 4000) {
    const Seq seq = core_->Issue(now_, bytes, when);
    Take();
    return seq;
  }
  // Since the last call.
  Ranges Sent() {
    Ranges ranges;
    for (const auto& send : std::exchange(out_.sends, {}))
      ranges.push_back({send.first, send.last});
    return ranges;
  }
};

TEST_F(GatherTest, WhatNobodyWaitsForIsSentTogether) {
  Make(2, 1);
  Heal(2);
  // Until somebody waits.
  for (int i = 0; i < 3; ++i) Issue(SendWhen::kLater);
  EXPECT_EQ(Sent(), Ranges());
  EXPECT_EQ(core_->sendable(), 0u);
  core_->SendGathered(now_);
  Take();
  EXPECT_EQ(Sent(), Ranges({{1, 3}, {1, 3}}));
  // Until something is issued that cannot wait.
  Issue(SendWhen::kLater);
  Ack(0, 3);
  EXPECT_EQ(Sent(), Ranges());
  Issue(SendWhen::kNow);
  EXPECT_EQ(Sent(), Ranges({{4, 5}, {4, 5}}));
  // Until it fills a datagram.
  Issue(SendWhen::kLater, 50'000);
  EXPECT_EQ(Sent(), Ranges());
  Issue(SendWhen::kLater, 10'000);
  EXPECT_EQ(Sent(), Ranges({{6, 7}, {6, 7}}));
  // Until it is a millisecond old.
  for (int i = 0; i < 2; ++i) Ack(i, 7);
  Issue(SendWhen::kLater);
  Tick(0);
  EXPECT_EQ(Sent(), Ranges());
  EXPECT_LE(core_->NextTick(now_), now_ + kMs);
  Tick(1);
  EXPECT_EQ(Sent(), Ranges({{8, 8}, {8, 8}}));
  for (int i = 0; i < 2; ++i) Ack(i, 8);
  EXPECT_EQ(core_->durable(), 8u);
  EXPECT_GT(core_->NextTick(now_), now_ + 10 * kMs);
}

TEST_F(GatherTest, WhatIsWaitedForIsSentAtOnceOrWithWhatIsIssuedMeanwhile) {
  Make(2, 2);
  Heal(2);
  Issue(SendWhen::kSoon);
  EXPECT_EQ(Sent(), Ranges({{1, 1}, {1, 1}}));
  for (int i = 0; i < 3; ++i) Issue(SendWhen::kSoon);
  Ack(0, 1);
  EXPECT_EQ(Sent(), Ranges()) << "the first is not durable yet";
  Ack(1, 1);
  EXPECT_EQ(Sent(), Ranges({{2, 4}, {2, 4}}));
  // Nobody waits: it is not sent because something became durable.
  Issue(SendWhen::kLater);
  for (int i = 0; i < 2; ++i) Ack(i, 4);
  EXPECT_EQ(Sent(), Ranges());
  core_->SendSoon(now_);
  Take();
  EXPECT_EQ(Sent(), Ranges({{5, 5}, {5, 5}}));
  // An acknowledgement that does not come holds nothing up for long.
  Issue(SendWhen::kSoon);
  Tick(1);
  EXPECT_EQ(Sent(), Ranges({{6, 6}, {6, 6}}));
}

TEST_F(GatherTest, WhileRecordsAreFewNoneWaitsForThoseBeforeIt) {
  Make(2, 2, /*few=*/3);
  Heal(2);
  for (Seq seq = 1; seq <= 3; ++seq) {
    Issue(SendWhen::kSoon);
    EXPECT_EQ(Sent(), Ranges({{seq, seq}, {seq, seq}}));
  }
  for (int i = 0; i < 2; ++i) Issue(SendWhen::kSoon);
  EXPECT_EQ(Sent(), Ranges()) << "now they are many";
  for (int i = 0; i < 2; ++i) Ack(i, 1);
  EXPECT_EQ(Sent(), Ranges());
  for (int i = 0; i < 2; ++i) Ack(i, 2);
  EXPECT_EQ(Sent(), Ranges({{4, 5}, {4, 5}}));
}

TEST_F(ReplicatorTest, WhatWasSentLateIsNotAwaitedBeforeItWasSent) {
  Make(1, 1);
  Heal(1);
  core_->Issue(now_, 4000, SendWhen::kLater);
  Take();
  Tick(13);  // a hedge would be due, had it been sent when it was issued
  ASSERT_EQ(out_.sends.size(), 1u);
  EXPECT_FALSE(out_.stable_wanted);
  // Nor when more was sent since.
  for (int i = 0; i < 2; ++i) Issue();
  Tick(0);
  EXPECT_FALSE(out_.stable_wanted);
  Tick(13);
  EXPECT_TRUE(out_.stable_wanted);
}

TEST_F(ReplicatorTest, AnotherIncarnationNeverCounts) {
  Make(1, 1);
  Heal(1);
  Issue();
  Ack(0, 1, 0, 999);
  EXPECT_EQ(core_->durable(), 0u);
  EXPECT_FALSE(core_->counting_acks());
}

TEST_F(ReplicatorTest, WithoutAcksTheDiskHedgesThenTheModeBecomesLocal) {
  Make(1, 1);
  Heal(1);
  Issue();
  Tick(30);
  EXPECT_TRUE(out_.stable_wanted);
  EXPECT_TRUE(core_->counting_acks());
  for (int i = 0; i < 10; ++i) Tick(10);
  EXPECT_FALSE(core_->counting_acks());
  WriteStable();
  EXPECT_EQ(core_->durable(), 1u);
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->mode, Mode::kLocal);
}

TEST_F(ReplicatorTest, TheStableLogAloneMakesARecordDurableWhileReplicated) {
  Make(2, 2);
  Heal(2);
  Issue();
  Ack(0, 1);
  Tick(30);
  WriteStable();
  EXPECT_EQ(core_->durable(), 1u);
  EXPECT_TRUE(core_->counting_acks());
}

TEST_F(ReplicatorTest, LosingAMemberSecuresWhatLeanedOnItBeforeTheNote) {
  Make(3, 2);
  Heal(3);
  Issue();
  Ack(0, 1);
  Ack(1, 1);
  ASSERT_EQ(core_->durable(), 1u);
  out_.note.reset();
  Ack(1, 0, 0, 777);  // reborn
  EXPECT_FALSE(out_.note.has_value()) << "seq 1 leans on one member only";
  EXPECT_TRUE(out_.stable_wanted);
  WriteStable();
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->members, 0b101);
}

TEST_F(ReplicatorTest, HowLongAReplicaHasBeenSilentIsSaidAsOfNow) {
  Make(1, 1);
  Heal(1);
  while (core_->replica(0, now_).member) {
    ASSERT_LT(now_, 60'000 * kMs) << "it is never lost";
    Tick(100);
  }
  Tick(60'000);
  const std::string problem = core_->replica(0, now_).problem;
  ASSERT_EQ(problem.rfind("silent for ", 0), 0u) << problem;
  EXPECT_GE(std::stoll(problem.substr(11)), 60'000) << problem;
}

TEST_F(ReplicatorTest, AMemberComesBackOnlyWithABaseAtTheCheckpoint) {
  Make(2, 1);
  Heal(2);
  Issue();
  Ack(0, 1);
  Ack(1, 0, 0, 777);
  while (out_.note) {
    out_.note.reset();
    core_->OnNoteWritten(now_, absl::OkStatus());
    Take();
  }
  EXPECT_EQ(core_->noted().members, 0b01);
  Tick(1);
  core_->OnOpened(now_, 1, 777, 2, 64 << 20);
  Take();
  for (int i = 0; i < 20; ++i) {
    Ack(1, 1, 0, 777);
    Tick(10);
  }
  EXPECT_EQ(core_->noted().members, 0b01);
  EXPECT_FALSE(out_.note.has_value());
  core_->OnApplied(1);
  Tick(10);
  ASSERT_TRUE(out_.start_sync);
  core_->OnSynced(now_, 1, absl::OkStatus());
  Take();
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->members, 0b11);
  EXPECT_EQ(out_.note->checkpoint, 1u);
}

TEST_F(ReplicatorTest, TrimAndCutFollowTheNoteNotTheSync) {
  Make(1, 1);
  Heal(1);
  Issue();
  Ack(0, 1);
  core_->OnApplied(1);
  core_->RequestCheckpoint();
  Tick(1);
  ASSERT_TRUE(out_.start_sync);
  core_->OnSynced(now_, 1, absl::OkStatus());
  Take();
  EXPECT_EQ(core_->checkpoint(), 0u);
  EXPECT_FALSE(out_.cut.has_value());
  core_->OnNoteWritten(now_, absl::OkStatus());
  Take();
  EXPECT_EQ(core_->checkpoint(), 1u);
  EXPECT_EQ(out_.cut, std::optional<Seq>(1));
}

TEST_F(ReplicatorTest, NothingIsIssuedNearTheDeadline) {
  Make(0, 1);
  Tick(1);
  Issue();
  EXPECT_TRUE(core_->CanIssue(now_, 1000));
  Tick(1850);
  EXPECT_TRUE(core_->CanIssue(now_, 1000));
  Tick(100);  // older than k*tau - 2*delta = 1900 ms
  EXPECT_FALSE(core_->CanIssue(now_, 1000));
}

TEST_F(ReplicatorTest, AFullLogBlocksIssuers) {
  Make(0, 1);
  while (core_->CanIssue(now_, 100'000)) {
    core_->Issue(now_, 100'000);
    WriteStable();
  }
  EXPECT_GT(core_->uncheckpointed_bytes(), 900'000u);
  EXPECT_LE(core_->uncheckpointed_bytes(), 1u << 20);
}

TEST_F(ReplicatorTest, AFencedAckFailsTheVolumeForGood) {
  Make(1, 1);
  Heal(1);
  Issue();
  Ack(0, 1, kAckFenced);
  EXPECT_TRUE(absl::IsFailedPrecondition(core_->failure()));
  EXPECT_EQ(core_->durable(), 0u);
  Ack(0, 1);
  EXPECT_EQ(core_->durable(), 0u);
}

// I4: a process that was stopped while a recovery fenced its replicas must hear so before its own
// disk acknowledges.
TEST_F(ReplicatorTest, AfterAStopReplicasGetTheirTimeToAnswerBeforeTheDiskIsTaken) {
  Make(1, 1);
  Heal(1);
  Issue();
  Tick(1000);
  EXPECT_FALSE(out_.stable_wanted);
  EXPECT_TRUE(core_->counting_acks());
  EXPECT_FALSE(out_.sends.empty());
  Ack(0, 1, kAckFenced);
  EXPECT_TRUE(absl::IsFailedPrecondition(core_->failure()));
  EXPECT_EQ(core_->durable(), 0u);
}

TEST_F(ReplicatorTest, AfterAStopWithoutAnAnswerTheModeBecomesLocal) {
  Make(1, 1);
  Heal(1);
  Issue();
  Tick(1000);
  for (int i = 0; i < 11; ++i) Tick(10);
  EXPECT_FALSE(core_->counting_acks());
}

TEST_F(ReplicatorTest, AProcessThatIsAlwaysLateGoesToModeLocalAllTheSame) {
  Make(1, 1);
  Heal(1);
  Issue();
  for (int i = 0; i < 6; ++i) Tick(1000);
  EXPECT_FALSE(core_->counting_acks());
}

TEST_F(ReplicatorTest, AReplicaOutOfMemoryIsTreatedAsLost) {
  Make(2, 1);
  Heal(2);
  Issue();
  Ack(0, 1);
  Ack(1, 0, kAckMemoryFull);
  while (out_.note) {
    out_.note.reset();
    core_->OnNoteWritten(now_, absl::OkStatus());
    Take();
  }
  EXPECT_EQ(core_->noted().members, 0b01);
}

TEST_F(ReplicatorTest, AcksForRecordsNeverIssuedHaveNoEffect) {
  Make(1, 1);
  Heal(1);
  Issue();
  Ack(0, 5);
  EXPECT_EQ(core_->durable(), 0u);
}

TEST_F(ReplicatorTest, WhatGotLostIsSentAgain) {
  Make(1, 1);
  Heal(1);
  Issue();
  out_.sends.clear();
  Tick(30);
  ASSERT_FALSE(out_.sends.empty());
  EXPECT_TRUE(out_.sends[0].again);
  EXPECT_EQ(out_.sends[0].first, 1u);
}

// One process under two addresses holds one copy.
TEST_F(ReplicatorTest, TheSameMemoryUnderTwoAddressesCountsOnce) {
  Make(2, 2);
  Tick(1);
  for (int i = 0; i < 2; ++i) core_->OnOpened(now_, i, 100, 1, 64 << 20);
  Take();
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 2; ++i) Ack(i, 0, 0, 100);
    Tick(10);
    EXPECT_FALSE(out_.note.has_value() && out_.note->mode == Mode::kReplicated);
  }
  EXPECT_EQ(core_->replica(0, now_).problem, "");
  EXPECT_NE(core_->replica(1, now_).problem.find("replica 0"), std::string::npos);
}

TEST_F(ReplicatorTest, WhoIsNowhereLeavesItsMemoryToWhoIsThereNow) {
  Make(2, 1);
  Tick(1);
  core_->OnOpened(now_, 0, 100, 1, 64 << 20);
  core_->OnOpened(now_, 1, 100, 1, 64 << 20);
  Take();
  EXPECT_NE(core_->replica(1, now_).problem, "") << "it is replica 0";
  core_->OnNowhere(now_, 0);
  Take();
  EXPECT_EQ(core_->replica(1, now_).problem, "");
  EXPECT_FALSE(core_->replica(0, now_).connected);
  EXPECT_EQ(core_->replica(0, now_).problem, "another replica has its address");
}

TEST_F(ReplicatorTest, TheSameMemoryUnderALowerNumberThatComesLaterDoesNotCountToo) {
  Make(3, 2);
  Tick(1);
  for (int i = 1; i < 3; ++i) core_->OnOpened(now_, i, 100 + i, 1, 64 << 20);
  Take();
  const auto settle = [&](int first) {
    for (int round = 0; round < 20; ++round) {
      for (int i = first; i < 3; ++i) Ack(i, 0, 0, i == 0 ? 101 : 100 + i);
      Tick(10);
      if (!out_.note.has_value()) continue;
      out_.note.reset();
      core_->OnNoteWritten(now_, absl::OkStatus());
      Take();
    }
  };
  settle(1);
  EXPECT_EQ(core_->noted().members, 0b110);
  core_->OnOpened(now_, 0, 101, 1, 64 << 20);  // replica 1's
  settle(0);
  EXPECT_EQ(core_->noted().members, 0b110);
  EXPECT_NE(core_->replica(0, now_).problem.find("replica 1"), std::string::npos);
  EXPECT_EQ(core_->replica(1, now_).problem, "");
}

// A replica that has the session from an earlier open, whose answer was lost, begins lower.
TEST_F(ReplicatorTest, WhatLiesBelowTheBaseIsNotAwaited) {
  Make(1, 1);
  for (int i = 0; i < 10; ++i) core_->Issue(now_, 100);
  Tick(1);
  ASSERT_EQ(out_.opens.back().base, 11u);
  core_->OnOpened(now_, 0, 100, 11, 64 << 20);
  for (int i = 0; i < 10; ++i) core_->Issue(now_, 100);
  AckPayload ack;
  ack.incarnation = 100;
  ack.base = 1;
  ack.contiguous = 0;
  ack.ranges = {{11, 20}};
  ack.free_bytes = 64 << 20;
  core_->OnAck(now_, 0, kMs / 10, ack);
  EXPECT_EQ(core_->replica(0, now_).contiguous, 20u);
}

// Another host may answer at the address that the replica had.
TEST_F(ReplicatorTest, AReplicaThatIsLostAsSoonAsItIsOpenIsOpenedLessAndLessOften) {
  Make(1, 1);
  int opens = 0;
  for (int ms = 0; ms < 10'000; ++ms) {
    out_.opens.clear();
    Tick(1);
    if (out_.opens.empty()) continue;
    ++opens;
    core_->OnOpened(now_, 0, 100, out_.opens.back().base, 64 << 20);
    Ack(0, 0, 0, 999);  // another incarnation
  }
  EXPECT_GE(opens, 4);
  EXPECT_LE(opens, 10);
}

}  // namespace
}  // namespace salius
