// A session whose records are issued, sent and acknowledged by other processes, without a stable
// log: the ways between the modes, and the notices.
#include <gtest/gtest.h>

#include <utility>

#include "absl/status/status.h"
#include "tests/unit/session/replicator_testing.h"

namespace salius {
namespace {

class NoticeTest : public ReplicatorTest {
 protected:
  NoticeTest() { noticed_ = true; }

  void OpenAll(int replicas) {
    Tick(1);
    for (int i = 0; i < replicas; ++i) core_->OnOpened(now_, i, 100 + i, 7000 + i, 1, 64 << 20);
    Take();
    for (int i = 0; i < replicas; ++i) Ack(i, core_->issued());
  }
  // Ends the sync under way: it covers what was issued when it began.
  void EndSync(Seq applied_before, absl::Status status = absl::OkStatus()) {
    ASSERT_TRUE(std::exchange(out_.start_sync, false));
    core_->OnSynced(now_, applied_before, status);
    Take();
  }
  void EndNote() {
    ASSERT_TRUE(out_.note.has_value());
    out_.note.reset();
    core_->OnNoteWritten(now_, absl::OkStatus());
    Take();
  }
  void PassStripes() {
    ASSERT_TRUE(std::exchange(out_.pass_stripes, false));
    core_->OnStripesPassed(now_);
    Take();
  }
  void StartStamping() {
    ASSERT_NO_FATAL_FAILURE(EndSync(core_->issued()));
    ASSERT_EQ(core_->phase(), StampPhase::kStamping);
  }
  // From mode local, with open replicas, to mode replicated.
  void HealNoticed() {
    ASSERT_NO_FATAL_FAILURE(StartStamping());
    ASSERT_NO_FATAL_FAILURE(PassStripes());
    ASSERT_NO_FATAL_FAILURE(EndSync(core_->issued()));
    ASSERT_NO_FATAL_FAILURE(EndNote());
    ASSERT_EQ(core_->phase(), StampPhase::kReplicated);
  }
  void Begin(int replicas, int acks) {
    Make(replicas, acks);
    OpenAll(replicas);
    ASSERT_NO_FATAL_FAILURE(HealNoticed());
    out_ = {};
  }
  Seq Notice() {
    window_->Add(1000, now_);
    core_->NoticeIssued();
    Take();
    return core_->issued();
  }
  Seq NoticeAndSend() {
    const Seq seq = Notice();
    core_->NoticeSent(now_, seq);
    Take();
    return seq;
  }
};

TEST_F(NoticeTest, HealingStampsThenSyncsThenNotesThenCounts) {
  Make(2, 1);
  EXPECT_EQ(core_->phase(), StampPhase::kLocal);
  OpenAll(2);
  EXPECT_EQ(core_->phase(), StampPhase::kLocal) << "the first sync is under way";
  ASSERT_NO_FATAL_FAILURE(StartStamping());
  Tick(10);
  EXPECT_FALSE(out_.start_sync) << "a write before stamping may not have reached the page cache";
  ASSERT_NO_FATAL_FAILURE(PassStripes());
  Notice();
  const Seq before = core_->issued();
  EXPECT_TRUE(out_.start_sync);
  NoticeAndSend();
  ASSERT_NO_FATAL_FAILURE(EndSync(before));
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->mode, Mode::kReplicated);
  EXPECT_EQ(out_.note->checkpoint, before);
  EXPECT_EQ(out_.note->members, 0b11);
  Ack(0, 2);
  EXPECT_FALSE(core_->counting_acks());
  EXPECT_EQ(core_->phase(), StampPhase::kStamping);
  EXPECT_EQ(core_->durable(), 0u) << "the note has not returned";
  ASSERT_NO_FATAL_FAILURE(EndNote());
  EXPECT_EQ(core_->phase(), StampPhase::kReplicated);
  EXPECT_EQ(core_->durable(), 2u);
}

TEST_F(NoticeTest, StripesArePassedOnceForEachHealing) {
  Make(1, 1);
  OpenAll(1);
  ASSERT_NO_FATAL_FAILURE(StartStamping());
  EXPECT_TRUE(std::exchange(out_.pass_stripes, false));
  Tick(10);
  Tick(10);
  EXPECT_FALSE(out_.pass_stripes);
}

TEST_F(NoticeTest, KeptStripeEndsHealingSoThatCallersDoNotWait) {
  Make(1, 1);
  OpenAll(1);
  ASSERT_NO_FATAL_FAILURE(StartStamping());
  for (int i = 0; i < 30; ++i) {
    Tick(50);
    Ack(0, 0);
  }
  EXPECT_EQ(core_->phase(), StampPhase::kLocal);
  core_->OnStripesPassed(now_);  // too late
  Take();
  EXPECT_EQ(core_->phase(), StampPhase::kLocal);
}

TEST_F(NoticeTest, LostCandidateEndsHealing) {
  Make(1, 1);
  OpenAll(1);
  ASSERT_NO_FATAL_FAILURE(StartStamping());
  ASSERT_NO_FATAL_FAILURE(PassStripes());
  Ack(0, 0, 0, 999);  // another incarnation
  EXPECT_EQ(core_->phase(), StampPhase::kLocal);
  ASSERT_NO_FATAL_FAILURE(EndSync(0));
  EXPECT_FALSE(out_.note.has_value());
}

TEST_F(NoticeTest, SyncThatBeganBeforeStampingDoesNotHeal) {
  Make(1, 1);
  OpenAll(1);
  ASSERT_NO_FATAL_FAILURE(StartStamping());
  Notice();
  core_->RequestCheckpoint(now_);
  Take();
  ASSERT_TRUE(out_.start_sync);  // an ordinary one
  ASSERT_NO_FATAL_FAILURE(PassStripes());
  ASSERT_NO_FATAL_FAILURE(EndSync(1));
  EXPECT_TRUE(out_.start_sync) << "the one that heals begins now";
  EXPECT_EQ(core_->phase(), StampPhase::kStamping);
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->mode, Mode::kLocal);
}

TEST_F(NoticeTest, GoingLocalStopsStampingAndNotesAllThatWasIssued) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  NoticeAndSend();
  Ack(0, 1);
  ASSERT_EQ(core_->durable(), 1u);
  NoticeAndSend();  // durable nowhere
  Ack(0, 0, 0, 999);
  EXPECT_EQ(core_->phase(), StampPhase::kGoingLocal);
  EXPECT_FALSE(core_->counting_acks());
  EXPECT_FALSE(out_.note.has_value()) << "nothing is on the disk yet";
  EXPECT_FALSE(out_.stable_wanted);
  ASSERT_NO_FATAL_FAILURE(EndSync(2));
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->mode, Mode::kLocal);
  EXPECT_EQ(out_.note->checkpoint, 2u);
  EXPECT_EQ(core_->phase(), StampPhase::kGoingLocal);
  EXPECT_EQ(core_->durable(), 1u);
  ASSERT_NO_FATAL_FAILURE(EndNote());
  EXPECT_EQ(core_->phase(), StampPhase::kLocal);
  EXPECT_EQ(core_->durable(), 2u);
}

TEST_F(NoticeTest, SyncThatBeganBeforeTheLastRecordDoesNotGoLocal) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  NoticeAndSend();
  core_->RequestCheckpoint(now_);
  Take();
  ASSERT_TRUE(out_.start_sync);
  NoticeAndSend();
  Ack(0, 0, 0, 999);
  ASSERT_NO_FATAL_FAILURE(EndSync(1));
  EXPECT_FALSE(out_.note.has_value());
  ASSERT_NO_FATAL_FAILURE(EndSync(2));
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->checkpoint, 2u);
}

TEST_F(NoticeTest, AcknowledgementsDoNotCountWhileGoingLocal) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  NoticeAndSend();
  for (int i = 0; i < 40 && core_->phase() == StampPhase::kReplicated; ++i) Tick(10);
  ASSERT_EQ(core_->phase(), StampPhase::kGoingLocal);
  Ack(0, 1);
  EXPECT_EQ(core_->durable(), 0u);
}

TEST_F(NoticeTest, SilentMembersEndInModeLocalWithoutAHedge) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  NoticeAndSend();
  for (int i = 0; i < 40 && core_->phase() == StampPhase::kReplicated; ++i) {
    EXPECT_FALSE(out_.stable_wanted);
    Tick(10);
  }
  EXPECT_EQ(core_->phase(), StampPhase::kGoingLocal);
}

TEST_F(NoticeTest, LostMemberIsNotedAfterACheckpoint) {
  ASSERT_NO_FATAL_FAILURE(Begin(3, 2));
  NoticeAndSend();
  Ack(0, 1);
  Ack(1, 1);
  ASSERT_EQ(core_->durable(), 1u);
  Ack(1, 0, 0, 999);
  EXPECT_EQ(core_->phase(), StampPhase::kReplicated);
  EXPECT_FALSE(out_.note.has_value()) << "record 1 relies on the lost member";
  ASSERT_NO_FATAL_FAILURE(EndSync(1));
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->members, 0b101);
  EXPECT_EQ(out_.note->checkpoint, 1u);
  NoticeAndSend();
  Ack(0, 2);
  Ack(2, 2);
  EXPECT_EQ(core_->durable(), 1u) << "a recovery would use the note with the lost member";
  ASSERT_NO_FATAL_FAILURE(EndNote());
  EXPECT_EQ(core_->durable(), 2u);
}

TEST_F(NoticeTest, ClaimedRecordsAreSentAgainWhenTheClaimantDied) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  NoticeAndSend();
  EXPECT_TRUE(out_.sends.empty()) << "the process sends it";
  for (int i = 0; i < 20 && out_.sends.empty(); ++i) Tick(2);
  ASSERT_FALSE(out_.sends.empty());
  EXPECT_EQ(out_.sends.front().first, 1u);
  EXPECT_TRUE(out_.sends.front().again);
}

TEST_F(NoticeTest, ClaimsThatAReplicaMissedAreSentToItWhenItOpens) {
  ASSERT_NO_FATAL_FAILURE(Begin(2, 1));
  Ack(1, 0, 0, 999);
  ASSERT_NO_FATAL_FAILURE(EndNote());
  Tick(1);
  ASSERT_FALSE(out_.opens.empty());
  const Seq base = out_.opens.back().base;
  NoticeAndSend();
  out_.sends.clear();
  core_->OnOpened(now_, 1, 999, 7001, base, 64 << 20);
  Take();
  ASSERT_EQ(out_.sends.size(), 1u);
  EXPECT_EQ(out_.sends[0].replica, 1);
  EXPECT_EQ(out_.sends[0].first, 1u);
  EXPECT_FALSE(out_.sends[0].again);
  NoticeAndSend();
  EXPECT_EQ(out_.sends.size(), 1u) << "the process sends this one to both";
}

TEST_F(NoticeTest, UnsentRecordIsNotSentByTheReplicator) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  Notice();
  Tick(20);
  EXPECT_TRUE(out_.sends.empty()) << "its body may not be complete";
  EXPECT_EQ(core_->sendable(), 0u);
}

TEST_F(NoticeTest, MemoryThatWentBackIsLost) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  for (int i = 0; i < 3; ++i) NoticeAndSend();
  Ack(0, 3);
  now_ += 10 * kMs;
  Ack(0, 1);
  EXPECT_EQ(core_->phase(), StampPhase::kGoingLocal);
}

TEST_F(NoticeTest, FencedFails) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  Ack(0, 0, kAckFenced);
  EXPECT_EQ(core_->phase(), StampPhase::kFailed);
  EXPECT_TRUE(absl::IsFailedPrecondition(core_->failure()));
}

TEST_F(NoticeTest, FailedSyncFails) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  NoticeAndSend();
  core_->RequestCheckpoint(now_);
  Take();
  ASSERT_NO_FATAL_FAILURE(EndSync(1, absl::InternalError("EIO")));
  EXPECT_EQ(core_->phase(), StampPhase::kFailed);
}

TEST_F(NoticeTest, FullMemoryTakesTheReplicaFromTheTargets) {
  ASSERT_NO_FATAL_FAILURE(Begin(2, 1));
  ASSERT_EQ(core_->targets(), 0b11);
  Ack(1, 0, kAckMemoryFull);
  EXPECT_EQ(core_->targets(), 0b01);
  EXPECT_EQ(core_->connected(), 0b11);
  NoticeAndSend();
  EXPECT_EQ(core_->phase(), StampPhase::kReplicated);
}

TEST_F(NoticeTest, OldRecordsAreCheckpointedByTheirTimeOfIssue) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  window_->Add(1000, now_ - 600 * kMs);  // more than tau / 2 ago
  core_->NoticeIssued();
  core_->NoticeSent(now_, 1);
  Ack(0, 1);
  EXPECT_TRUE(out_.start_sync);
  EXPECT_GE(core_->oldest_uncheckpointed_ns(now_), 600 * kMs);
}

TEST_F(NoticeTest, SyncIsCleanWhenTheNoteOfItsCheckpointReturned) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  const uint64_t before = core_->syncs_begun();
  NoticeAndSend();
  core_->RequestCheckpoint(now_);
  Take();
  ASSERT_NO_FATAL_FAILURE(EndSync(1));
  EXPECT_LE(core_->clean_sync(), before) << "record 1 would still be replayed";
  ASSERT_NO_FATAL_FAILURE(EndNote());
  EXPECT_EQ(core_->clean_sync(), before + 1);
}

TEST_F(NoticeTest, RequestedSyncIsCleanAtOnceWhenNothingWasIssued) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  core_->RequestSync(now_);
  Take();
  ASSERT_NO_FATAL_FAILURE(EndSync(0));
  EXPECT_FALSE(out_.note.has_value());
  EXPECT_EQ(core_->clean_sync(), core_->syncs_begun());
}

TEST_F(NoticeTest, SyncThatEndsWhileItsCheckpointIsNotedIsCleanAfterwards) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  NoticeAndSend();
  core_->RequestCheckpoint(now_);
  Take();
  ASSERT_NO_FATAL_FAILURE(EndSync(1));
  core_->RequestSync(now_);
  Take();
  ASSERT_NO_FATAL_FAILURE(EndSync(1));
  EXPECT_LT(core_->clean_sync(), core_->syncs_begun());
  ASSERT_NO_FATAL_FAILURE(EndNote());
  EXPECT_FALSE(out_.note.has_value());
  EXPECT_EQ(core_->clean_sync(), core_->syncs_begun());
}

TEST_F(NoticeTest, DurableThatProcessesCountedIsTaken) {
  ASSERT_NO_FATAL_FAILURE(Begin(1, 1));
  NoticeAndSend();
  core_->NoticeDurable(1);
  EXPECT_EQ(core_->durable(), 1u);
  core_->NoticeDurable(0);
  EXPECT_EQ(core_->durable(), 1u);
}

TEST_F(NoticeTest, NewFileIdLimitIsNotedInModeLocal) {
  Make(1, 1);
  Tick(1);
  core_->RequestNote(now_);
  Take();
  ASSERT_TRUE(out_.note.has_value());
  EXPECT_EQ(out_.note->mode, Mode::kLocal);
}

}  // namespace
}  // namespace salius
