// Which replicas are members of the volume, and count: single rules of the replicator, step by
// step.
#include <gtest/gtest.h>

#include "tests/unit/engine/replicator_testing.h"

namespace salius {
namespace {

TEST_F(ReplicatorTest, AnotherIncarnationNeverCounts) {
  Make(1, 1);
  Heal(1);
  Issue();
  Ack(0, 1, 0, 999);
  EXPECT_EQ(core_->durable(), 0u);
  EXPECT_FALSE(core_->counting_acks());
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
