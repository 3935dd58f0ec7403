// Dropping of records (E), restarts and damage (G), old records (H), marks, reading: one test or
// table for each rule. The letters are those of replica/acceptor.h.
#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/replica/acceptor_testing.h"

namespace salius {
namespace {

// ---- E: dropping of records

TEST_F(AcceptorTest, TrimOfTheSessionDropsAndVanishingGapsCount) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1), TestRecord(3), TestRecord(5)});
  Trim(3);
  EXPECT_EQ(Ack().contiguous, 3u);
  EXPECT_EQ(Ack().trimmed, 3u);
  EXPECT_EQ(Ack().base, 1u);
  EXPECT_EQ(FetchAll(), TestRecord(5));
  EXPECT_EQ(Held().checkpoint_mark, 3u);
  Trim(2);
  EXPECT_EQ(Ack().trimmed, 3u);
}

TEST_F(AcceptorTest, TrimOfAnotherSessionDropsNothing) {
  ASSERT_EQ(Open(2), StatusCode::kOk);
  Send({TestRecord(1, 10, 2)}, 2);
  Trim(1, 2, kSession + 1);
  Trim(1, 1);
  Trim(1, 3);
  EXPECT_EQ(Held().records, 1u);
}

TEST_F(AcceptorTest, NewerEpochDropsTheOlderLog) {
  ASSERT_EQ(Open(1), StatusCode::kOk);
  Send({TestRecord(1)});
  ASSERT_EQ(Open(2, 78), StatusCode::kOk);
  EXPECT_EQ(Held().records, 0u);
  EXPECT_EQ(Held().durable_mark, 0u);
  EXPECT_EQ(acceptor_->used_bytes(), 0u);
  EXPECT_EQ(acceptor_->StartFetch(TestVolume(), 1, 0).status().code(), StatusCode::kNotFound);
}

TEST_F(AcceptorTest, DropVolumeDropsOlderEpochsAndKeepsThePromise) {
  ASSERT_EQ(Open(3), StatusCode::kOk);
  Send({TestRecord(1, 10, 3)}, 3);
  EXPECT_EQ(acceptor_->DropVolume(TestVolume(), 2).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(Held().records, 1u);
  ASSERT_TRUE(Fence(4, 1));
  EXPECT_EQ(acceptor_->DropVolume(TestVolume(), 3).value(), TestRecord(1, 10, 3).size());
  EXPECT_FALSE(Held().known);
  EXPECT_EQ(Held().promised_epoch, 4u);
  EXPECT_EQ(acceptor_->used_bytes(), 0u);
  // F
  EXPECT_EQ(Open(3), StatusCode::kFailedPrecondition);
  Restart();
  EXPECT_EQ(Open(3), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Held().promised_epoch, 4u);
  // The recovery that holds the token may run again.
  EXPECT_TRUE(Fence(4, 1));
}

TEST_F(AcceptorTest, TrimBelowACheckpointMarkAlreadyKnownSurvivesARestart) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  RecordHeader header = TestHeader(9);
  header.checkpoint_mark = 8;
  Send({TestRecord(1), TestRecord(2), EncodeRecord(header, "x")});
  Trim(1);
  Restart();
  EXPECT_EQ(Held().trimmed, 1u);
  EXPECT_EQ(Held().records, 2u);
}

TEST_F(AcceptorTest, DropVolumeWithoutPromiseForgetsTheVolume) {
  EXPECT_EQ(acceptor_->DropVolume(TestVolume(), 1).value(), 0u);
  ASSERT_EQ(Open(3), StatusCode::kOk);
  const uint64_t free_before = acceptor_->free_bytes();
  EXPECT_TRUE(acceptor_->DropVolume(TestVolume(), 3).ok());
  EXPECT_EQ(acceptor_->volume_count(), 0u);
  EXPECT_GT(acceptor_->free_bytes(), free_before);
  EXPECT_EQ(Restart().volumes, 0u);
}

TEST_F(AcceptorTest, SessionKeepsTheLogOfAnotherSessionOfItsEpoch) {
  ASSERT_EQ(Open(3), StatusCode::kOk);
  EXPECT_EQ(acceptor_->DropVolume(TestVolume(), 3, kSession + 1).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(acceptor_->volume_count(), 1u);
  EXPECT_TRUE(acceptor_->DropVolume(TestVolume(), 3, kSession).ok());
  EXPECT_EQ(acceptor_->volume_count(), 0u);
}

TEST_F(AcceptorTest, NothingIsAbandonedByDefault) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1)});
  now_ += int64_t{10000} * 86400 * kSecond;
  EXPECT_TRUE(acceptor_->Tick(now_).abandoned.empty());
  EXPECT_EQ(FetchAll(), TestRecord(1));
}

TEST_F(AcceptorTest, AbandonAfterCountsFromTheLastFrame) {
  options_.abandon_after_ns = 100 * kSecond;
  Format();
  ASSERT_EQ(Open(), StatusCode::kOk);
  ASSERT_TRUE(Fence(9, 1));
  ASSERT_EQ(Open(9), StatusCode::kOk);
  now_ += 99 * kSecond;
  Send({TestRecord(1, 10, 9)}, 9);
  for (int second = 0; second <= 100; ++second) {
    EXPECT_TRUE(acceptor_->Tick(now_).abandoned.empty()) << second;
    now_ += second < 100 ? kSecond : 1;
  }
  EXPECT_EQ(acceptor_->Tick(now_).abandoned, std::vector<VolumeId>{TestVolume()});
  EXPECT_FALSE(Held().known);
  EXPECT_EQ(Held().promised_epoch, 9u);
}

// A volume that a recovery has fenced, and fetches from, stays too, however long that takes.
TEST_F(AcceptorTest, AbandonAfterCountsFromTheLastFenceOrFetchToo) {
  options_.abandon_after_ns = 100 * kSecond;
  Format();
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1), TestRecord(2)});
  const auto ticks = [this](int seconds) {
    for (; seconds > 0; --seconds) {
      now_ += kSecond;
      if (!acceptor_->Tick(now_).abandoned.empty()) return false;
    }
    return true;
  };
  ASSERT_TRUE(ticks(99));
  ASSERT_TRUE(Fence(2, 5));
  EXPECT_TRUE(ticks(99)) << "fenced";
  ASSERT_TRUE(Fence(2, 5));
  EXPECT_TRUE(ticks(99)) << "fenced again";
  const auto fetch = acceptor_->StartFetch(TestVolume(), 1, 0);
  ASSERT_TRUE(fetch.ok());
  EXPECT_TRUE(ticks(99)) << "fetched";
  Seq cursor = fetch->start;
  std::string records;
  ASSERT_TRUE(acceptor_->ReadRecords(TestVolume(), 1, *fetch, &cursor, 1, &records).ok());
  EXPECT_TRUE(ticks(99)) << "read";
  EXPECT_FALSE(Fence(2, 6));
  EXPECT_FALSE(acceptor_->StartFetch(TestVolume(), 2, 0).ok());
  EXPECT_TRUE(ticks(1));
  EXPECT_FALSE(ticks(1)) << "refused";
}

// Frames that came meanwhile may lie unread.
TEST_F(AcceptorTest, TimeInWhichTheReplicaWasStoppedAbandonsNothing) {
  options_.abandon_after_ns = 100 * kSecond;
  Format();
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1)});
  EXPECT_TRUE(acceptor_->Tick(now_).abandoned.empty());
  now_ += 1000 * kSecond;
  EXPECT_TRUE(acceptor_->Tick(now_).abandoned.empty());
  for (int second = 0; second <= 100; ++second) {
    EXPECT_TRUE(acceptor_->Tick(now_).abandoned.empty()) << second;
    now_ += second < 100 ? kSecond : 1;
  }
  EXPECT_EQ(acceptor_->Tick(now_).abandoned.size(), 1u);
}

// ---- G: unknown, and damage

TEST_F(AcceptorTest, UnknownVolumeIsAnsweredUnknownNotEmpty) {
  EXPECT_FALSE(Held().known);
  EXPECT_EQ(acceptor_->StartFetch(TestVolume(), 1, 0).status().code(), StatusCode::kNotFound);
  // A fence does not turn "lost everything" into "holds nothing".
  ASSERT_TRUE(Fence(2, 1));
  EXPECT_FALSE(Held().known);
  EXPECT_EQ(Ack(2).flags, kAckUnknownSession);
}

TEST_F(AcceptorTest, RestartKeepsSessionPromiseMarksAndRecords) {
  ASSERT_EQ(Open(1, kSession, 1), StatusCode::kOk);
  FrameHeader header = TestFrame({TestRecord(1), TestRecord(2), TestRecord(4)});
  header.durable_mark = 2;
  header.trim_mark = 1;
  Frame(header, {TestRecord(1), TestRecord(2), TestRecord(4)});
  ASSERT_TRUE(Fence(5, 6));
  const Inventory before = Held();
  const Incarnation incarnation = arena_->incarnation();
  const Acceptor::AttachReport report = Restart();
  EXPECT_EQ(report.volumes, 1u);
  EXPECT_EQ(report.records, 2u);
  EXPECT_EQ(report.damaged, 0u);
  EXPECT_EQ(arena_->incarnation(), incarnation);
  const Inventory after = Held();
  EXPECT_TRUE(after.known);
  EXPECT_EQ(after.epoch, before.epoch);
  EXPECT_EQ(after.session, before.session);
  EXPECT_EQ(after.base, before.base);
  EXPECT_EQ(after.contiguous, before.contiguous);
  EXPECT_EQ(after.highest, before.highest);
  EXPECT_EQ(after.records, before.records);
  EXPECT_EQ(after.trimmed, before.trimmed);
  EXPECT_EQ(after.durable_mark, 2u);
  EXPECT_EQ(after.checkpoint_mark, before.checkpoint_mark);
  EXPECT_EQ(after.promised_epoch, 5u);
  EXPECT_EQ(FetchAll(), TestRecord(2) + TestRecord(4));
  EXPECT_EQ(Send({TestRecord(3)}).standing, Standing::kFenced);
  EXPECT_TRUE(Fence(5, 6));
  EXPECT_FALSE(Fence(5, 7));
}

TEST_F(AcceptorTest, SessionContinuesAfterARestart) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1)});
  Restart();
  Send({TestRecord(2)});
  EXPECT_EQ(Ack().contiguous, 2u);
  EXPECT_EQ(FetchAll(), TestRecord(1) + TestRecord(2));
}

TEST_F(AcceptorTest, DamageChangesTheIncarnationAndKeepsTheRest) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1), TestRecord(2), TestRecord(3)});
  const std::string second = TestRecord(2);
  const auto bytes = AsBytes(second);
  const auto memory = memory_->span();
  auto at = std::search(memory.begin(), memory.end(), bytes.begin(), bytes.end());
  ASSERT_NE(at, memory.end());
  at[60] ^= 1;
  const Incarnation before = arena_->incarnation();
  EXPECT_EQ(Restart().damaged, 1u);
  EXPECT_NE(arena_->incarnation(), before);
  EXPECT_EQ(Ack().contiguous, 1u);
  EXPECT_EQ(Ack().ranges, (std::vector<SeqRange>{{3, 3}}));
  EXPECT_EQ(FetchAll(), TestRecord(1) + TestRecord(3));
  Restart();
  EXPECT_NE(arena_->incarnation(), before);
}

TEST_F(AcceptorTest, LostSlotChangesTheIncarnation) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Trim(1);
  for (size_t copy = 0; copy < 2; ++copy) {
    memory_->span()[kArenaPageBytes + copy * kSlotCopyBytes + 50] ^= 1;
  }
  const Incarnation before = arena_->incarnation();
  EXPECT_EQ(Restart().volumes, 0u);
  EXPECT_NE(arena_->incarnation(), before);
  EXPECT_FALSE(Held().known);
}

// One bad copy of a slot looks like an update that was cut off.
TEST_F(AcceptorTest, DamageToEitherCopyOfItsSlotTakesNoPromiseBack) {
  for (const bool again : {false, true}) {
    for (size_t copy = 0; copy < 2; ++copy) {
      SCOPED_TRACE(::testing::Message() << again << " again, copy " << copy);
      options_.promises.clear();
      Format();
      ASSERT_EQ(Open(), StatusCode::kOk);
      Send({TestRecord(1)});
      ASSERT_TRUE(Fence(2, 5));
      if (again) {
        // The process was killed between the copies: one has its old content.
        VolumeSlot before = *arena_->slot(0);
        const VolumeSlot promise = before;
        before.promise_epoch = before.promise_token = 0;
        arena_->WriteSlot(0, before);
        arena_->WriteSlot(0, promise);
        ASSERT_TRUE(Fence(2, 5));
      }
      memory_->span()[kArenaPageBytes + copy * kSlotCopyBytes + 50] ^= 1;
      const Incarnation before = arena_->incarnation();
      Restart(/*with_promises=*/false);
      EXPECT_EQ(arena_->incarnation(), before);
      EXPECT_EQ(Held().promised_epoch, 2u);
      EXPECT_EQ(Send({TestRecord(2)}).standing, Standing::kFenced);
      EXPECT_FALSE(Fence(2, 6));
    }
  }
}

TEST_F(AcceptorTest, SecondSlotOfAVolumeIsDamageAndIsFreed) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1)});
  VolumeSlot slot = *arena_->slot(0);
  const uint32_t free_segments = arena_->free_segments();
  const uint32_t second = arena_->NewSlot(slot).value();
  ASSERT_TRUE(arena_->AllocateSegment(second).has_value());
  const Incarnation before = arena_->incarnation();
  EXPECT_EQ(Restart().volumes, 1u);
  EXPECT_NE(arena_->incarnation(), before);
  EXPECT_EQ(Held().records, 1u);
  EXPECT_EQ(arena_->slot(second), nullptr);
  EXPECT_EQ(arena_->free_segments(), free_segments);
  const Incarnation after = arena_->incarnation();
  EXPECT_EQ(Restart().damaged, 0u);
  EXPECT_EQ(arena_->incarnation(), after);
}

// ---- H: too old

TEST_F(AcceptorTest, RecordOlderThanKTauIsKeptAndReported) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1)});
  now_ += 60 * kSecond;
  EXPECT_EQ(Ack().flags, 0);
  EXPECT_TRUE(acceptor_->Tick(now_).became_overdue.empty());
  now_ += 1;
  EXPECT_EQ(Ack().flags, kAckOverdue);
  EXPECT_TRUE(Held().overdue);
  EXPECT_EQ(acceptor_->overdue_count(now_), 1u);
  EXPECT_EQ(acceptor_->Tick(now_).became_overdue, std::vector<VolumeId>{TestVolume()});
  EXPECT_TRUE(acceptor_->Tick(now_).became_overdue.empty());
  EXPECT_EQ(FetchAll(), TestRecord(1));
  Trim(1);
  EXPECT_EQ(Ack().flags, 0);
  EXPECT_FALSE(Held().overdue);
}

TEST_F(AcceptorTest, TrimmedInTimeIsNeverOverdue) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  for (Seq seq = 1; seq <= 100; ++seq) {
    Send({TestRecord(seq)});
    if (seq > 10) Trim(seq - 10);
    now_ += 5 * kSecond;  // the oldest is 50 s old, the limit is 60 s
    acceptor_->Tick(now_);
    ASSERT_EQ(Ack().flags, 0) << seq;
  }
  now_ += 30 * kSecond;
  EXPECT_EQ(Ack().flags, kAckOverdue);
}

TEST_F(AcceptorTest, OverdueSessionStaysOverdueWhileOnlyNewRecordsCome) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  for (Seq seq = 1; seq <= 1000; ++seq) {
    Send({TestRecord(seq, 0)});
    now_ += kSecond;
  }
  EXPECT_EQ(Ack().flags, kAckOverdue);
}

TEST_F(AcceptorTest, SessionWithoutKTauIsNeverOverdue) {
  SessionParams params = Params();
  params.k = 0;
  ASSERT_TRUE(acceptor_->OpenSession(now_, params).ok());
  Send({TestRecord(1)});
  now_ += 1000000 * kSecond;
  EXPECT_EQ(Ack().flags, 0);
}

// ---- marks, reading, status

TEST_F(AcceptorTest, LargestMarksOfFramesAndRecordsAreKept) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  RecordHeader header = TestHeader(9);
  header.durable_mark = 8;
  header.checkpoint_mark = 2;
  FrameHeader frame = TestFrame({EncodeRecord(header, "x")});
  frame.durable_mark = 7;
  Frame(frame, {EncodeRecord(header, "x")});
  EXPECT_EQ(arena_->slot(0)->durable_mark, 8u);
  EXPECT_EQ(arena_->slot(0)->checkpoint_mark, 2u);
  EXPECT_EQ(Held().durable_mark, 8u);
  EXPECT_EQ(Held().checkpoint_mark, 2u);
  FrameHeader probe = TestFrame({});
  probe.durable_mark = 9;
  Frame(probe, {});
  EXPECT_EQ(Held().durable_mark, 9u);
  Restart();
  EXPECT_EQ(Held().durable_mark, 9u);
}

// The process was killed after the record was stored and before its marks were in the slot.
TEST_F(AcceptorTest, MarksOfRecordsAreFoundAgainAtARestart) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  const auto slots = memory_->span().subspan(kArenaPageBytes, kSlotBytes);
  const std::vector<uint8_t> before(slots.begin(), slots.end());
  RecordHeader header = TestHeader(9);
  header.durable_mark = 8;
  header.checkpoint_mark = 2;
  Send({EncodeRecord(header, "x")});
  std::copy(before.begin(), before.end(), slots.begin());
  Restart();
  EXPECT_EQ(Held().records, 1u);
  EXPECT_EQ(Held().durable_mark, 8u);
  EXPECT_EQ(Held().checkpoint_mark, 2u);
  EXPECT_EQ(arena_->slot(0)->durable_mark, 8u) << "known only for as long as the record is there";
  EXPECT_EQ(arena_->slot(0)->checkpoint_mark, 2u);
}

TEST_F(AcceptorTest, FetchCountsAndResumes) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  for (Seq seq = 1; seq <= 9; ++seq) Send({TestRecord(seq)});
  Trim(2);
  EXPECT_EQ(acceptor_->StartFetch(TestVolume(), 1, 0)->count, 7u);
  EXPECT_EQ(acceptor_->StartFetch(TestVolume(), 1, 7)->count, 2u);
  EXPECT_EQ(acceptor_->StartFetch(TestVolume(), 1, 9)->count, 0u);
  EXPECT_EQ(acceptor_->StartFetch(TestVolume(), 2, 0).status().code(), StatusCode::kNotFound);
}

TEST_F(AcceptorTest, FetchIsAbortedWhenTheLogChangesUnderIt) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  for (Seq seq = 1; seq <= 9; ++seq) Send({TestRecord(seq)});
  const auto fetch = acceptor_->StartFetch(TestVolume(), 1, 0).value();
  Seq cursor = fetch.start;
  std::string out;
  ASSERT_EQ(acceptor_->ReadRecords(TestVolume(), 1, fetch, &cursor, 1, &out).value(), 1u);
  Trim(1);  // a record that was read already
  ASSERT_TRUE(acceptor_->ReadRecords(TestVolume(), 1, fetch, &cursor, out.size() + 1, &out).ok());
  Trim(5);
  EXPECT_EQ(acceptor_->ReadRecords(TestVolume(), 1, fetch, &cursor, 1, &out).status().code(),
            StatusCode::kAborted);
  ASSERT_TRUE(acceptor_->DropVolume(TestVolume(), 1).ok());
  EXPECT_EQ(acceptor_->ReadRecords(TestVolume(), 1, fetch, &cursor, 1, &out).status().code(),
            StatusCode::kAborted);
}

TEST_F(AcceptorTest, StatusNamesEveryVolumeAndMulticastGroupOnce) {
  SessionParams params = Params();
  params.multicast = "239.1.2.3:7500";
  ASSERT_TRUE(acceptor_->OpenSession(now_, params).ok());
  params.volume = TestVolume(2);
  ASSERT_TRUE(acceptor_->OpenSession(now_, params).ok());
  ASSERT_TRUE(acceptor_->Fence(TestVolume(3), 1, 1).ok());
  const auto status = acceptor_->Status(now_);
  ASSERT_EQ(status.size(), 3u);
  EXPECT_EQ(status[0].volume, TestVolume(1));
  EXPECT_GE(status[0].memory_bytes, params.memory_bytes);
  EXPECT_FALSE(status[2].inventory.known);
  EXPECT_EQ(acceptor_->MulticastGroups(), std::vector<std::string>{"239.1.2.3:7500"});
  Restart();
  EXPECT_EQ(acceptor_->MulticastGroups(), std::vector<std::string>{"239.1.2.3:7500"});
}

TEST(DropNameTest, EveryReasonHasItsOwnName) {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < kDropReasons; ++i) {
    const std::string_view name = DropName(static_cast<Drop>(i));
    EXPECT_FALSE(name.empty());
    EXPECT_EQ(std::find(names.begin(), names.end(), name), names.end()) << name;
    names.push_back(name);
  }
}

}  // namespace
}  // namespace salius
