// Single rules of the replicator, step by step; whole histories are in tests/sim.
#include "client/session/replicator.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "client/session/peer_path.h"
#include "common/limits.h"
#include "tests/unit/session/replicator_testing.h"

namespace salius {
namespace {

TEST_F(ReplicatorTest, AcksDoNotCountBeforeTheReplicatedNoteHasReturned) {
  Make(2, 1);
  Tick(1);
  core_->OnOpened(now_, 0, 100, 7000 + 0, 1, 64 << 20);
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
  // Returns the ranges sent since the last call.
  Ranges Sent() {
    Ranges ranges;
    for (const auto& send : std::exchange(out_.sends, {}))
      ranges.push_back({send.first, send.last});
    return ranges;
  }
};

TEST_F(GatherTest, UnawaitedRecordsAreSentTogether) {
  Make(2, 1);
  Heal(2);
  // Until a caller waits.
  for (int i = 0; i < 3; ++i) Issue(SendWhen::kLater);
  EXPECT_EQ(Sent(), Ranges());
  EXPECT_EQ(core_->sendable(), 0u);
  core_->Send(now_, SendWhen::kNow);
  Take();
  EXPECT_EQ(Sent(), Ranges({{1, 3}, {1, 3}}));
  // Until a record is issued that cannot wait.
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

TEST_F(GatherTest, AwaitedRecordIsSentAtOnceWithRecordsIssuedMeanwhile) {
  Make(2, 2);
  Heal(2);
  Issue(SendWhen::kSoon);
  EXPECT_EQ(Sent(), Ranges({{1, 1}, {1, 1}}));
  for (int i = 0; i < 3; ++i) Issue(SendWhen::kSoon);
  Ack(0, 1);
  EXPECT_EQ(Sent(), Ranges()) << "the first is not durable yet";
  Ack(1, 1);
  EXPECT_EQ(Sent(), Ranges({{2, 4}, {2, 4}}));
  // No caller waits: that a record became durable does not send it.
  Issue(SendWhen::kLater);
  for (int i = 0; i < 2; ++i) Ack(i, 4);
  EXPECT_EQ(Sent(), Ranges());
  core_->Send(now_, SendWhen::kSoon);
  Take();
  EXPECT_EQ(Sent(), Ranges({{5, 5}, {5, 5}}));
  // A missing acknowledgement holds nothing up for long.
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
  for (int i = 0; i < 2; ++i) Ack(i, 2);
  EXPECT_EQ(Sent(), Ranges()) << "and were so just now";
  for (int i = 0; i < 2; ++i) Ack(i, 3);
  EXPECT_EQ(Sent(), Ranges({{4, 5}, {4, 5}}));
}

TEST_F(GatherTest, ThatRecordsWereManyIsForgottenWhenTheyStayFew) {
  Make(2, 2, /*few=*/2);
  Heal(2);
  const auto issue_and_ack = [this](int count) {
    Seq last = 0;
    for (int i = 0; i < count; ++i) last = Issue(SendWhen::kSoon);
    const size_t sent = Sent().size();
    for (int i = 0; i < 2; ++i) Ack(i, core_->sendable());
    for (int i = 0; i < 2; ++i) Ack(i, last);
    Sent();
    EXPECT_EQ(core_->durable(), last);
    return sent;
  };
  EXPECT_EQ(issue_and_ack(2), 4u) << "each to two replicas";
  EXPECT_EQ(issue_and_ack(3), 4u) << "the third waited";
  EXPECT_EQ(issue_and_ack(2), 2u) << "the second waited: there were three";
  for (int i = 0; i < 128; ++i) EXPECT_EQ(issue_and_ack(1), 2u);
  EXPECT_EQ(issue_and_ack(2), 4u);
}

TEST_F(ReplicatorTest, LateRecordIsAwaitedFromItsSendTime) {
  Make(1, 1);
  Heal(1);
  core_->Issue(now_, 4000, SendWhen::kLater);
  Take();
  Tick(13);  // a hedge would be due, had it been sent when it was issued
  ASSERT_EQ(out_.sends.size(), 1u);
  EXPECT_FALSE(out_.stable_wanted);
  // Nor when more records were sent since.
  for (int i = 0; i < 2; ++i) Issue();
  Tick(0);
  EXPECT_FALSE(out_.stable_wanted);
  Tick(13);
  EXPECT_TRUE(out_.stable_wanted);
}

// The caller may not have read the acknowledgements that came meanwhile.
TEST_F(ReplicatorTest, RequestsLetNoTimePass) {
  Make(1, 1);
  Heal(1);
  Issue();
  out_.sends.clear();
  now_ += 1'000'000'000;  // a re-send, a hedge and a partition, were it a tick
  core_->RequestCheckpoint(now_);
  core_->RequestNote(now_);
  Take();
  EXPECT_TRUE(out_.sends.empty());
  EXPECT_FALSE(out_.stable_wanted);
  EXPECT_TRUE(core_->counting_acks());
  EXPECT_TRUE(out_.note.has_value());
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

// A recovery under that note asks no replica.
TEST_F(ReplicatorTest, ModeLocalIsNotedOnceTheStableLogHasEveryDurableRecord) {
  Make(2, 1);
  Heal(2);
  Issue();
  Ack(0, 1);
  ASSERT_EQ(core_->durable(), 1u);
  Issue();
  for (int i = 0; i < 30 && core_->counting_acks(); ++i) Tick(10);
  ASSERT_FALSE(core_->counting_acks());
  Tick(10);
  EXPECT_FALSE(out_.note.has_value()) << "only a replica has seq 1";
  WriteStable();
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

TEST_F(ReplicatorTest, TrimAndCutFollowTheNoteNotTheSync) {
  Make(1, 1);
  Heal(1);
  Issue();
  Ack(0, 1);
  core_->OnApplied(1);
  core_->RequestCheckpoint(now_);
  Take();
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

TEST_F(ReplicatorTest, NoFailureHasTheCodeOfASlowDisk) {
  Make(1, 1);
  Heal(1);
  Issue();
  core_->OnApplyFailed(absl::DeadlineExceededError("the disk says ETIMEDOUT"));
  EXPECT_FALSE(core_->failure().ok());
  EXPECT_FALSE(absl::IsDeadlineExceeded(core_->failure()));
  EXPECT_EQ(core_->failure().message(), "the disk says ETIMEDOUT");
}

// I4: a process that was stopped while a recovery fenced its replicas must learn that before its
// own disk acknowledges.
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

TEST_F(ReplicatorTest, AlwaysLateProcessStillGoesToModeLocal) {
  Make(1, 1);
  Heal(1);
  Issue();
  for (int i = 0; i < 6; ++i) Tick(1000);
  EXPECT_FALSE(core_->counting_acks());
}

TEST_F(ReplicatorTest, AcksForRecordsNeverIssuedHaveNoEffect) {
  Make(1, 1);
  Heal(1);
  Issue();
  Ack(0, 5);
  EXPECT_EQ(core_->durable(), 0u);
}

TEST_F(ReplicatorTest, LostRecordIsSentAgain) {
  Make(1, 1);
  Heal(1);
  Issue();
  out_.sends.clear();
  Tick(30);
  ASSERT_FALSE(out_.sends.empty());
  EXPECT_TRUE(out_.sends[0].again);
  EXPECT_EQ(out_.sends[0].first, 1u);
}

// Most time-outs come from a busy host: a whole window that is sent twice would be for nothing.
TEST_F(ReplicatorTest, TimeOutSendsOneRecordAgain) {
  Make(1, 1);
  Heal(1);
  for (int i = 0; i < 5; ++i) Issue();
  out_.sends.clear();
  Tick(30);
  ASSERT_EQ(out_.sends.size(), 1u);
  EXPECT_TRUE(out_.sends[0].again);
  EXPECT_EQ(out_.sends[0].first, 1u);
  EXPECT_EQ(out_.sends[0].last, 1u);
}

TEST_F(ReplicatorTest, AnswerToARecordSentAgainShowsWhichOthersAreLost) {
  Make(1, 1);
  Heal(1);
  for (int i = 0; i < 5; ++i) Issue();
  Tick(30);
  Issue();  // after the time-out: it is under way
  out_.sends.clear();
  now_ += kMs;
  Ack(0, 1);
  ASSERT_EQ(out_.sends.size(), 1u);
  EXPECT_TRUE(out_.sends[0].again);
  EXPECT_EQ(out_.sends[0].first, 2u);
  EXPECT_EQ(out_.sends[0].last, 5u);
  out_.sends.clear();
  Ack(0, 1);
  EXPECT_TRUE(out_.sends.empty()) << "sent again once for an answer";
}

TEST_F(ReplicatorTest, LostWindowIsSentAgainPartByPartWithoutATimeOut) {
  Make(1, 1);
  Heal(1);
  for (int i = 0; i < 200; ++i) Issue();
  Tick(30);
  // The last records of a part may be under way still when its first ones are answered.
  for (const auto [acked, first, last] :
       {std::array<Seq, 3>{1, 2, 65}, {60, 66, 129}, {129, 130, 193}, {190, 194, 200}}) {
    out_.sends.clear();
    now_ += kMs;
    Ack(0, acked);
    ASSERT_EQ(out_.sends.size(), 1u) << first;
    EXPECT_TRUE(out_.sends[0].again);
    EXPECT_EQ(out_.sends[0].first, first);
    EXPECT_EQ(out_.sends[0].last, last);
  }
  out_.sends.clear();
  now_ += kMs;
  Ack(0, 195);
  EXPECT_TRUE(out_.sends.empty()) << "all were sent again";
}

// A lost transmission of several records is sent again in parts: that is one failure of its path.
TEST_F(ReplicatorTest, PathOnWhichLargeDatagramsVanishIsLearntFromJobsOfSeveralRecords) {
  Make(1, 1);
  Heal(1);
  for (const bool group : {false, true}) {
    PeerPath path;
    path.SetRoute(8972, group);
    const auto resend = [&] {
      for (const auto& send : std::exchange(out_.sends, {})) {
        ASSERT_TRUE(send.again);
        path.Resent(now_, send.first, send.last);
      }
    };
    for (int i = 0; i < PeerPath::kFailures; ++i) {
      EXPECT_EQ(path.datagram_bytes(), 8972u) << i;
      EXPECT_EQ(path.group(), group) << i;
      const Seq first = core_->issued() + 1;
      // 100 records: more than are sent again at once.
      for (int k = 0; k < 100; ++k) core_->Issue(now_, 80, SendWhen::kLater);
      core_->Send(now_, SendWhen::kNow);
      Take();
      const Seq last = core_->issued();
      path.Send(now_, first, last, 8000, group);
      out_.sends.clear();  // lost
      Tick(30);
      resend();
      for (const Seq acked : {first, first + 64, last}) {
        now_ += kMs;
        Ack(0, acked);
        resend();
        path.Acked(now_, acked);
      }
    }
    EXPECT_EQ(path.datagram_bytes(), group ? 8972u : kDatagramPayloadDefault);
    EXPECT_FALSE(path.group());
  }
}

TEST_F(ReplicatorTest, LateAnswerToAFirstTransmissionShowsNothing) {
  Make(1, 1);
  Heal(1);
  for (int i = 0; i < 5; ++i) Issue();
  Tick(30);
  out_.sends.clear();
  Ack(0, 1);  // of a frame that was sent earlier than the time-out
  EXPECT_TRUE(out_.sends.empty());
}

// One process under two addresses holds one copy.
// A replica that has the session from an earlier open, whose answer was lost, begins lower.
// Another host may answer at the address that the replica had.

TEST_F(ReplicatorTest, RecordKeptBackForAnOutputIsNoPartition) {
  output_triggered_ = true;
  Make(2, 2);
  Heal(2);
  out_ = {};
  Issue();
  // Longer than any partition time-out (100 ms), and shorter than an eighth of tau.
  for (int64_t ms = 0; ms < 120; ms += 5) {
    Tick(5);
    Ack(0, 0);
    Ack(1, 0);
  }
  EXPECT_TRUE(out_.sends.empty());
  EXPECT_FALSE(out_.stable_wanted);
  EXPECT_TRUE(core_->counting_acks());
  Tick(10);
  EXPECT_EQ(out_.sends.size(), 2u);
  Ack(0, 1);
  Ack(1, 1);
  EXPECT_EQ(core_->durable(), 1u);
}

TEST_F(ReplicatorTest, CallerSendsRecordsKeptBackForAnOutput) {
  output_triggered_ = true;
  Make(2, 2);
  Heal(2);
  out_ = {};
  Issue();
  Issue();
  EXPECT_TRUE(out_.sends.empty());
  core_->Send(now_, SendWhen::kNow);
  Take();
  ASSERT_EQ(out_.sends.size(), 2u);
  EXPECT_EQ(out_.sends[0].last, 2u);
}

}  // namespace
}  // namespace salius
