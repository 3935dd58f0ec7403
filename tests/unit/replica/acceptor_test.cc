// Every rule of the acceptor (the letters are those of replica/acceptor.h), one test or table each.
#include "replica/acceptor.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/limits.h"
#include "gtest/gtest.h"
#include "tests/unit/replica/replica_testing.h"

namespace salius {
namespace {

using Standing = Acceptor::Standing;
using absl::StatusCode;

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kSession = 77;

class AcceptorTest : public ::testing::Test {
 protected:
  AcceptorTest() { Format(); }

  void Format(uint64_t bytes = uint64_t{32} << 20) {
    acceptor_.reset();
    memory_ = std::make_unique<TestMemory>(bytes);
    arena_ = std::make_unique<Arena>(memory_->FormatAndAttach());
    acceptor_ = std::make_unique<Acceptor>(*arena_, options_, now_, nullptr);
  }
  // A new process on the same memory.
  Acceptor::AttachReport Restart() {
    acceptor_.reset();
    arena_ = std::make_unique<Arena>(memory_->Attach());
    Acceptor::AttachReport report;
    acceptor_ = std::make_unique<Acceptor>(*arena_, options_, now_, &report);
    return report;
  }

  SessionParams Params(Epoch epoch = 1, uint64_t session = kSession, Seq base = 1) {
    SessionParams params;
    params.volume = TestVolume();
    params.epoch = epoch;
    params.session = session;
    params.base = base;
    params.tau_ms = 30000;
    params.k = 2;
    params.memory_bytes = uint64_t{4} << 20;
    return params;
  }
  StatusCode Open(Epoch epoch = 1, uint64_t session = kSession, Seq base = 1) {
    return acceptor_->OpenSession(now_, Params(epoch, session, base)).status().code();
  }
  bool Fence(Epoch epoch, uint64_t token) {
    return acceptor_->Fence(TestVolume(), epoch, token).value().accepted;
  }
  Acceptor::FrameResult Frame(FrameHeader header, const std::vector<std::string>& records) {
    const std::string payload = Join(records);
    return acceptor_->OnFrame(now_, header, AsBytes(payload));
  }
  Acceptor::FrameResult Send(const std::vector<std::string>& records, Epoch epoch = 1,
                             uint64_t session = kSession) {
    return Frame(TestFrame(records, epoch, session), records);
  }
  AckPayload Ack(Epoch epoch = 1, uint64_t session = kSession, uint16_t flags = 0) {
    return acceptor_->MakeAck(now_, TestVolume(), epoch, session, flags);
  }
  void Trim(Seq seq, Epoch epoch = 1, uint64_t session = kSession) {
    FrameHeader probe = TestFrame({}, epoch, session);
    probe.trim_mark = seq;
    Frame(probe, {});
  }
  Inventory Held() { return acceptor_->GetInventory(now_, TestVolume()); }
  uint64_t Drops(Drop reason) { return acceptor_->counters().drops[static_cast<size_t>(reason)]; }
  std::string FetchAll(Epoch epoch = 1) {
    const auto fetch = acceptor_->StartFetch(TestVolume(), epoch, 0);
    if (!fetch.ok()) return fetch.status().ToString();
    std::string all;
    Seq cursor = fetch->start;
    while (cursor < fetch->upto) {
      const auto read =
          acceptor_->ReadRecords(TestVolume(), epoch, *fetch, &cursor, all.size() + 1000, &all);
      if (!read.ok()) return read.status().ToString();
    }
    return all;
  }

  int64_t now_ = 100 * kSecond;
  Acceptor::Options options_;
  std::unique_ptr<TestMemory> memory_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Acceptor> acceptor_;
};

// ---- A: only the open session's records

TEST_F(AcceptorTest, RecordOfTheSessionIsStoredAndAcknowledged) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  EXPECT_EQ(Ack().contiguous, 0u);
  const auto result = Send({TestRecord(1), TestRecord(2), TestRecord(4)});
  EXPECT_TRUE(result.reply);
  EXPECT_EQ(result.standing, Standing::kCurrent);
  const AckPayload ack = Ack();
  EXPECT_EQ(ack.incarnation, arena_->incarnation());
  EXPECT_EQ(ack.base, 1u);
  EXPECT_EQ(ack.contiguous, 2u);
  EXPECT_EQ(ack.ranges, (std::vector<SeqRange>{{4, 4}}));
  EXPECT_EQ(ack.flags, 0);
  EXPECT_GT(ack.free_bytes, 0u);
  EXPECT_EQ(FetchAll(), TestRecord(1) + TestRecord(2) + TestRecord(4));
}

TEST_F(AcceptorTest, FramesFromOutsideTheSessionHaveNoEffect) {
  struct Case {
    const char* what;
    VolumeId volume;
    Epoch epoch;
    uint64_t session;
    Standing standing;
    Drop counted;
    uint16_t flags;
  };
  const Case cases[] = {
      {"unknown volume", TestVolume(9), 3, kSession, Standing::kUnknownVolume, Drop::kUnknownVolume,
       kAckUnknownSession},
      {"later epoch", TestVolume(), 4, kSession, Standing::kForeignEpoch, Drop::kForeignEpoch,
       kAckUnknownSession},
      {"other session", TestVolume(), 3, 78, Standing::kBadSession, Drop::kBadSession,
       kAckUnknownSession},
      {"superseded epoch", TestVolume(), 2, kSession, Standing::kFenced, Drop::kFenced, kAckFenced},
  };
  ASSERT_EQ(Open(3), StatusCode::kOk);
  Send({TestRecord(1, 10, 3)}, 3);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const std::string record = TestRecord(2, 10, c.epoch, c.volume);
    FrameHeader header = TestFrame({record}, c.epoch, c.session, c.volume);
    header.trim_mark = 1;
    header.durable_mark = 50;
    const auto result = Frame(header, {record});
    EXPECT_TRUE(result.reply);
    EXPECT_EQ(result.standing, c.standing);
    EXPECT_EQ(Drops(c.counted), 1u);
    const AckPayload ack = acceptor_->MakeAck(now_, c.volume, c.epoch, c.session, 0);
    EXPECT_EQ(ack.flags, c.flags);
    EXPECT_EQ(ack.contiguous, 0u);
    EXPECT_TRUE(ack.ranges.empty());
    EXPECT_EQ(Held().records, 1u);
    EXPECT_EQ(Held().trimmed, 0u);
    EXPECT_EQ(Held().durable_mark, 0u);
  }
  EXPECT_EQ(acceptor_->MakeAck(now_, TestVolume(), 2, kSession, 0).promise_epoch, 3u);
}

TEST_F(AcceptorTest, RecordOfAnotherVolumeOrEpochThanItsFrameIsRefused) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1, 10, 1, TestVolume(9)), TestRecord(2, 10, 2), TestRecord(3)});
  EXPECT_EQ(Drops(Drop::kForeignRecord), 2u);
  EXPECT_EQ(FetchAll(), TestRecord(3));
}

TEST_F(AcceptorTest, RecordBelowTheBaseOrTheTrimMarkIsRefused) {
  ASSERT_EQ(Open(1, kSession, 5), StatusCode::kOk);
  Send({TestRecord(4), TestRecord(5), TestRecord(6)});
  EXPECT_EQ(Drops(Drop::kBelowBase), 1u);
  Trim(5);
  Send({TestRecord(5)});
  EXPECT_EQ(Drops(Drop::kTrimmed), 1u);
  EXPECT_EQ(FetchAll(), TestRecord(6));
  EXPECT_EQ(Ack().base, 5u);
  EXPECT_EQ(Ack().trimmed, 5u);
}

TEST_F(AcceptorTest, CorruptRecordEndsItsFrame) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  std::string bad = TestRecord(2);
  bad.back() ^= 1;
  Send({TestRecord(1), bad, TestRecord(3)});
  EXPECT_EQ(Drops(Drop::kCorruptRecord), 1u);
  EXPECT_EQ(FetchAll(), TestRecord(1));
}

TEST_F(AcceptorTest, BytesBehindTheLastRecordAreCounted) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  FrameHeader header = TestFrame({TestRecord(1), TestRecord(2)});
  header.count = 1;
  Frame(header, {TestRecord(1), TestRecord(2)});
  EXPECT_EQ(Drops(Drop::kCorruptFrame), 1u);
  EXPECT_EQ(FetchAll(), TestRecord(1));
}

TEST_F(AcceptorTest, AcknowledgementSentToAReplicaIsIgnored) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  FrameHeader header = TestFrame({});
  header.type = FrameType::kAck;
  header.trim_mark = 5;
  EXPECT_FALSE(Frame(header, {}).reply);
  EXPECT_EQ(Drops(Drop::kNotForReplica), 1u);
  EXPECT_EQ(Held().trimmed, 0u);
}

TEST_F(AcceptorTest, DuplicateIsAcknowledgedConflictIsRefusedBothCounted) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1)});
  Send({TestRecord(1)});
  EXPECT_EQ(Drops(Drop::kDuplicate), 1u);
  Send({TestRecord(1, 100, 1, TestVolume(), 'y')});
  EXPECT_EQ(Drops(Drop::kConflict), 1u);
  EXPECT_EQ(FetchAll(), TestRecord(1));
  EXPECT_EQ(Ack().contiguous, 1u);
}

TEST_F(AcceptorTest, RecordFarAheadIsRefusedNotAcknowledged) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(uint64_t{1} << 50)});
  EXPECT_EQ(Drops(Drop::kOutOfWindow), 1u);
  EXPECT_TRUE(Ack().ranges.empty());
}

TEST_F(AcceptorTest, PiecesMakeARecordAndItsMarksCount) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  RecordHeader record_header = TestHeader(5);
  record_header.durable_mark = 4;
  record_header.checkpoint_mark = 3;
  const std::string record = EncodeRecord(record_header, std::string(3000, 'p'));
  FrameHeader header = TestFrame({});
  header.type = FrameType::kFragment;
  Frame(header, {Piece(record, 5, 1000, 1000)});
  Frame(header, {Piece(record, 5, 3000, 1000)});
  Frame(header, {Piece(record, 5, 0, 1000)});
  EXPECT_EQ(Held().records, 0u);
  EXPECT_EQ(Held().durable_mark, 0u);
  Frame(header, {Piece(record, 5, 2000, 1000)});
  EXPECT_EQ(FetchAll(), record);
  EXPECT_EQ(Held().durable_mark, 4u);
  EXPECT_EQ(Held().checkpoint_mark, 3u);
}

TEST_F(AcceptorTest, BadPieceIsCounted) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  FrameHeader header = TestFrame({});
  header.type = FrameType::kFragment;
  std::string piece = Piece(TestRecord(1), 1, 0, 100);
  piece[0] ^= 1;
  Frame(header, {piece});
  EXPECT_EQ(Drops(Drop::kCorruptFrame), 1u);
  std::string bad = TestRecord(1);
  bad.back() ^= 1;
  Frame(header, {Piece(bad, 1, 0, static_cast<uint32_t>(bad.size()))});
  EXPECT_EQ(Drops(Drop::kCorruptRecord), 1u);
  const std::string foreign = TestRecord(2);
  Frame(header, {Piece(foreign, 1, 0, static_cast<uint32_t>(foreign.size()))});
  EXPECT_EQ(Drops(Drop::kForeignRecord), 1u);
  EXPECT_EQ(Held().records, 0u);
}

TEST_F(AcceptorTest, FullMemoryIsSaidAndWhatWasHeldStays) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Seq seq = 0;
  uint16_t flags = 0;
  while (flags == 0) flags = Send({TestRecord(++seq, 60000)}).flags;
  EXPECT_EQ(flags, kAckMemoryFull);
  EXPECT_EQ(Drops(Drop::kMemoryFull), 1u);
  EXPECT_EQ(Ack(1, kSession, flags).flags, kAckMemoryFull);
  EXPECT_EQ(Ack().contiguous, seq - 1);
  Trim(seq - 1);
  EXPECT_EQ(Send({TestRecord(seq, 60000)}).flags, 0);
  EXPECT_EQ(Ack().contiguous, seq);
}

TEST_F(AcceptorTest, OneVolumeCannotTakeAnothersMemory) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  SessionParams other = Params();
  other.volume = TestVolume(2);
  ASSERT_TRUE(acceptor_->OpenSession(now_, other).ok());
  Seq seq = 0;
  while (Send({TestRecord(++seq, 60000)}).flags == 0) {
  }
  uint64_t stored = 0;
  for (Seq s = 1; stored < other.memory_bytes; ++s) {
    const std::string record = TestRecord(s, 60000, 1, TestVolume(2));
    ASSERT_EQ(Frame(TestFrame({record}, 1, kSession, TestVolume(2)), {record}).flags, 0);
    stored += record.size();
  }
}

// ---- B, C: fences

TEST_F(AcceptorTest, AfterAFenceNothingOfAnOlderEpochIsStoredTrimmedOrNamed) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1), TestRecord(2)});
  ASSERT_TRUE(Fence(2, 5));
  FrameHeader header = TestFrame({TestRecord(3)});
  header.trim_mark = 1;
  header.durable_mark = 9;
  const auto result = Frame(header, {TestRecord(3)});
  EXPECT_TRUE(result.reply);
  EXPECT_EQ(result.standing, Standing::kFenced);
  const AckPayload ack = Ack();
  EXPECT_EQ(ack.flags, kAckFenced);
  EXPECT_EQ(ack.promise_epoch, 2u);
  EXPECT_EQ(ack.contiguous, 0u);
  EXPECT_TRUE(ack.ranges.empty());
  const Inventory held = Held();
  EXPECT_EQ(held.records, 2u);
  EXPECT_EQ(held.trimmed, 0u);
  EXPECT_EQ(held.durable_mark, 0u);
  EXPECT_EQ(held.promised_epoch, 2u);
}

TEST_F(AcceptorTest, FenceIsAcceptedByTheseRulesOnly) {
  struct Case {
    const char* what;
    Epoch session, promise, asked;
    uint64_t token;
    bool accepted;
  };
  // The promise in force has token 5.
  const Case cases[] = {
      {"unknown volume", 0, 0, 1, 5, true},
      {"above the session", 3, 0, 4, 5, true},
      {"equal to the session", 3, 0, 3, 5, false},
      {"below the session", 3, 0, 2, 5, false},
      {"above session and promise", 3, 4, 5, 6, true},
      {"the promise again", 3, 4, 4, 5, true},
      {"the promise's epoch, another token", 3, 4, 4, 6, false},
      {"below the promise", 0, 4, 3, 5, false},
      {"above the promise, not above the session", 6, 4, 5, 6, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Format();
    if (c.promise != 0) {
      ASSERT_TRUE(Fence(c.promise, 5));
    }
    if (c.session != 0) {
      // A session below the promise was opened before it.
      if (c.session < c.promise) Format();
      ASSERT_EQ(Open(c.session), StatusCode::kOk);
      if (c.session < c.promise) {
        ASSERT_TRUE(Fence(c.promise, 5));
      }
    }
    const auto result = acceptor_->Fence(TestVolume(), c.asked, c.token).value();
    EXPECT_EQ(result.accepted, c.accepted);
    EXPECT_EQ(result.promised_epoch, c.accepted ? c.asked : c.promise);
    EXPECT_EQ(Held().promised_epoch, result.promised_epoch);
  }
}

TEST_F(AcceptorTest, FenceWithZerosIsInvalid) {
  EXPECT_EQ(acceptor_->Fence(VolumeId{}, 1, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(acceptor_->Fence(TestVolume(), 0, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(acceptor_->Fence(TestVolume(), 1, 0).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(AcceptorTest, FenceOfTooManyVolumesIsRefused) {
  for (uint32_t i = 0; i < arena_->geometry().slot_count; ++i) {
    VolumeId id = TestVolume();
    id.bytes[0] = static_cast<uint8_t>(i);
    id.bytes[1] = static_cast<uint8_t>(i >> 8);
    ASSERT_TRUE(acceptor_->Fence(id, 1, 1).ok());
  }
  EXPECT_EQ(acceptor_->Fence(TestVolume(99), 1, 1).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Open(), StatusCode::kResourceExhausted);
}

// ---- D: opening sessions

TEST_F(AcceptorTest, SessionIsOpenedByTheseRulesOnly) {
  struct Case {
    const char* what;
    Epoch promise;  // made after the session of epoch 5, session 77, base 10
    Epoch epoch;
    uint64_t session;
    Seq base;
    StatusCode code;
  };
  const Case cases[] = {
      {"newer epoch", 0, 6, 78, 1, StatusCode::kOk},
      {"older epoch", 0, 4, 77, 10, StatusCode::kFailedPrecondition},
      {"the same session again", 0, 5, 77, 10, StatusCode::kOk},
      {"the same session with a higher base", 0, 5, 77, 30, StatusCode::kOk},
      {"the same session with a lower base", 0, 5, 77, 9, StatusCode::kFailedPrecondition},
      {"another session of the same epoch", 0, 5, 78, 10, StatusCode::kFailedPrecondition},
      {"below a promise", 7, 6, 78, 1, StatusCode::kFailedPrecondition},
      {"the fenced session itself", 7, 5, 77, 10, StatusCode::kFailedPrecondition},
      {"at the promise", 7, 7, 78, 1, StatusCode::kOk},
      {"above the promise", 7, 8, 78, 1, StatusCode::kOk},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    Format();
    ASSERT_EQ(Open(5, 77, 10), StatusCode::kOk);
    Send({TestRecord(10, 10, 5)}, 5);
    if (c.promise != 0) {
      ASSERT_TRUE(Fence(c.promise, 1));
    }
    EXPECT_EQ(Open(c.epoch, c.session, c.base), c.code);
    const Inventory held = Held();
    const bool replaced = c.code == StatusCode::kOk && c.epoch != 5;
    EXPECT_EQ(held.epoch, replaced ? c.epoch : 5);
    EXPECT_EQ(held.session, replaced ? c.session : 77);
    // The same session opened again keeps its base and its records.
    EXPECT_EQ(held.base, replaced ? c.base : 10);
    EXPECT_EQ(held.records, replaced ? 0u : 1u);
    EXPECT_EQ(held.promised_epoch, c.promise);
  }
}

TEST_F(AcceptorTest, SessionAtThePromiseWorks) {
  ASSERT_TRUE(Fence(7, 1));
  ASSERT_EQ(Open(7), StatusCode::kOk);
  Send({TestRecord(1, 10, 7)}, 7);
  EXPECT_EQ(Ack(7).flags, 0);
  EXPECT_EQ(Ack(7).contiguous, 1u);
}

TEST_F(AcceptorTest, PromiseWithoutSessionAnswersUnknownToItsOwnEpoch) {
  ASSERT_TRUE(Fence(7, 1));
  EXPECT_EQ(Send({TestRecord(1, 10, 7)}, 7).standing, Standing::kUnknownVolume);
  EXPECT_EQ(Send({TestRecord(1, 10, 6)}, 6).standing, Standing::kFenced);
}

TEST_F(AcceptorTest, SessionWithZerosIsInvalid) {
  for (int field = 0; field < 5; ++field) {
    SessionParams params = Params();
    if (field == 0) params.volume = VolumeId{};
    if (field == 1) params.epoch = 0;
    if (field == 2) params.session = 0;
    if (field == 3) params.base = 0;
    if (field == 4) params.multicast = std::string(kMaxMulticastBytes + 1, 'x');
    EXPECT_EQ(acceptor_->OpenSession(now_, params).status().code(), StatusCode::kInvalidArgument)
        << field;
  }
}

TEST_F(AcceptorTest, NumbersNearTheEndOf64BitsAreInvalid) {
  EXPECT_EQ(Open(kMaxCount + 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(Open(1, kSession, kMaxCount + 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(acceptor_->Fence(TestVolume(), kMaxCount + 1, 1).status().code(),
            StatusCode::kInvalidArgument);
  // At the very end there is still room for what a trim looks at.
  ASSERT_EQ(Open(1, kSession, kMaxCount - 1), StatusCode::kOk);
  Send({TestRecord(kMaxCount - 1), TestRecord(kMaxCount)});
  EXPECT_EQ(Held().contiguous, kMaxCount);
  Trim(kMaxCount);
  EXPECT_EQ(Held().records, 0u);
}

TEST_F(AcceptorTest, GrantThatCannotBeGivenIsRefusedAndLeavesNothing) {
  SessionParams params = Params();
  params.memory_bytes = uint64_t{1} << 40;
  EXPECT_EQ(acceptor_->OpenSession(now_, params).status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(Held().known);
  EXPECT_EQ(acceptor_->volume_count(), 0u);
}

TEST_F(AcceptorTest, RefusedGrantLeavesTheOlderSessionAlone) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1)});
  SessionParams params = Params(2);
  params.memory_bytes = uint64_t{1} << 40;
  EXPECT_EQ(acceptor_->OpenSession(now_, params).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(FetchAll(), TestRecord(1));
}

TEST_F(AcceptorTest, SessionOfANewerEpochReusesItsOwnGrant) {
  SessionParams params = Params();
  params.memory_bytes = uint64_t{14} << 20;  // more than half of the arena
  for (Epoch epoch = 1; epoch <= 5; ++epoch) {
    params.epoch = epoch;
    ASSERT_TRUE(acceptor_->OpenSession(now_, params).ok());
    Send({TestRecord(1, 1000, epoch)}, epoch);
  }
  EXPECT_EQ(Held().records, 1u);
  EXPECT_LT(acceptor_->free_bytes(), acceptor_->memory_bytes() / 2);
}

TEST_F(AcceptorTest, ZeroMemoryMeansTheDefault) {
  Format(uint64_t{128} << 20);
  SessionParams params = Params();
  params.memory_bytes = 0;
  EXPECT_GE(acceptor_->OpenSession(now_, params).value(), kDefaultLogMaxBytes);
}

// ---- E: what drops records

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
  // With its token: the recovery that holds it may run again.
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
  now_ += 100 * kSecond;
  EXPECT_TRUE(acceptor_->Tick(now_).abandoned.empty());
  now_ += 1;
  EXPECT_EQ(acceptor_->Tick(now_).abandoned, std::vector<VolumeId>{TestVolume()});
  EXPECT_FALSE(Held().known);
  EXPECT_EQ(Held().promised_epoch, 9u);
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

TEST_F(AcceptorTest, SessionGoesOnAfterARestart) {
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
  EXPECT_EQ(Held().durable_mark, 8u);
  EXPECT_EQ(Held().checkpoint_mark, 2u);
  FrameHeader probe = TestFrame({});
  probe.durable_mark = 9;
  Frame(probe, {});
  EXPECT_EQ(Held().durable_mark, 9u);
  Restart();
  EXPECT_EQ(Held().durable_mark, 9u);
}

// Killed after the record was stored and before its marks were noted in the slot.
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
  Trim(1);  // what was read already
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
