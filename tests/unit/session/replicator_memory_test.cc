// A replica whose memory went back to an earlier moment under the same incarnation (I5).
#include <gtest/gtest.h>

#include "tests/unit/session/replicator_testing.h"

namespace salius {
namespace {

class MemoryTest : public ReplicatorTest {
 protected:
  void AckAs(const AckPayload& ack, int64_t rtt = kMs / 10) {
    core_->OnAck(now_, 0, rtt, ack);
    Take();
  }
  static AckPayload Names(Seq contiguous, std::vector<SeqRange> ranges = {}) {
    AckPayload ack;
    ack.incarnation = 100;
    ack.base = 1;
    ack.contiguous = contiguous;
    ack.ranges = std::move(ranges);
    ack.free_bytes = 64 << 20;
    return ack;
  }
  void FinishNotes() {
    while (out_.note) {
      out_.note.reset();
      core_->OnNoteWritten(now_, absl::OkStatus());
      Take();
    }
  }
};

TEST_F(MemoryTest, AckBelowAnEarlierOneIsALoss) {
  Make(2, 2);
  Heal(2);
  for (int i = 0; i < 10; ++i) Issue();
  Ack(0, 10);
  Ack(1, 10);
  ASSERT_EQ(core_->durable(), 10u);
  Tick(5);
  Ack(0, 4);
  EXPECT_FALSE(core_->replica(0, now_).member);
  EXPECT_FALSE(core_->counting_acks());
  EXPECT_NE(core_->replica(0, now_).problem.find("went back"), std::string::npos);
  Issue();
  Ack(1, 11);
  EXPECT_EQ(core_->durable(), 10u);
}

TEST_F(MemoryTest, AnAckThatWasOvertakenIsNoLoss) {
  Make(1, 1);
  Heal(1);
  for (int i = 0; i < 10; ++i) Issue();
  Tick(5);
  AckAs(Names(10));
  AckAs(Names(4), 2 * kMs);
  AckAs(Names(4), -1);
  EXPECT_TRUE(core_->replica(0, now_).member);
  EXPECT_TRUE(core_->counting_acks());
}

TEST_F(MemoryTest, MissingRangeInALaterAckIsALoss) {
  Make(1, 1);
  Heal(1);
  for (int i = 0; i < 10; ++i) Issue();
  AckAs(Names(2, {{5, 8}}));
  Tick(5);
  AckAs(Names(4));
  EXPECT_FALSE(core_->replica(0, now_).member);
}

// The replica keeps its session when that is opened again, with the records that it holds then.
TEST_F(MemoryTest, RecordsHeldBeforeReopeningDoNotCount) {
  Make(2, 1);
  Heal(2);
  for (int i = 0; i < 10; ++i) Issue();
  Ack(0, 10);
  Ack(1, 10);
  Tick(5);
  Ack(0, 4);
  WriteStable();
  FinishNotes();
  ASSERT_EQ(core_->noted().members, 0b10);
  out_.opens.clear();
  Tick(1);
  ASSERT_EQ(out_.opens.size(), 1u);
  EXPECT_EQ(out_.opens[0].base, 11u);
  Tick(5);
  core_->OnOpened(now_, 0, 100, 7000, 11, 64 << 20);
  Take();
  AckAs(Names(10), 20 * kMs);  // of a frame from before it was opened again
  EXPECT_EQ(core_->replica(0, now_).contiguous, 10u) << "base - 1: nothing";
  for (int i = 0; i < 5; ++i) Issue();
  AckAs(Names(15), 20 * kMs);
  EXPECT_EQ(core_->replica(0, now_).contiguous, 10u);
  Tick(5);
  AckAs(Names(4, {{11, 15}}));
  EXPECT_EQ(core_->replica(0, now_).contiguous, 15u);
  // It is a member again only when a checkpoint covers the records that it lacks.
  for (int i = 0; i < 30; ++i) {
    Tick(10);
    AckAs(Names(4, {{11, 15}}));
    Ack(1, 15);
    WriteStable();
    FinishNotes();
  }
  EXPECT_EQ(core_->noted().members, 0b10);
  core_->OnApplied(15);
  Tick(10);
  ASSERT_TRUE(out_.start_sync);
  core_->OnSynced(now_, 15, absl::OkStatus());
  Take();
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->members, 0b11);
  EXPECT_EQ(out_.note->base[0], 11u);
  EXPECT_GE(out_.note->checkpoint + 1, out_.note->base[0]);
}

TEST_F(MemoryTest, ASilentReplicaThatComesBackWithLessIsNoMember) {
  Make(2, 1);
  Heal(2);
  for (int i = 0; i < 10; ++i) Issue();
  Ack(0, 10);
  Ack(1, 10);
  while (core_->replica(0, now_).member) {
    ASSERT_LT(now_, 60'000 * kMs);
    Tick(50);
    Ack(1, 10);
    WriteStable();
    FinishNotes();
  }
  Tick(50);
  Ack(0, 4);
  EXPECT_EQ(core_->replica(0, now_).incarnation, 0u) << "it is opened again";
}

}  // namespace
}  // namespace salius
