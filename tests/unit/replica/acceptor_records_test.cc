// Storing and acknowledging of records (A), one test or table for each rule. The letters are those
// of replica/acceptor.h.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/replica/acceptor_testing.h"

namespace salius {
namespace {

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

TEST_F(AcceptorTest, FullMemoryIsReportedAndHeldRecordsStay) {
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

}  // namespace
}  // namespace salius
