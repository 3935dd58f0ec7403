// Which acknowledgements count, and when a record is durable.
#include "tests/unit/direct/direct_testing.h"

namespace salius::direct {
namespace {

class DirectAcksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PublishReplicated(window(), 2);
    WindowLock lock(window());
    for (int i = 0; i < 10; ++i) {
      Draft draft;
      draft.file = 1;
      MarkReady(window(), Reserve(window(), draft, 10, 10).seq);
    }
  }
  const SharedWindow& window() const { return shared_.window(); }
  Header& header() const { return window().header(); }
  AckBytes Ack(uint32_t replica, Seq contiguous) const {
    AckBytes ack{};
    ack.incarnation = 0x1000 + replica;
    ack.base = 1;
    ack.contiguous = contiguous;
    return ack;
  }
  AckVerdict Take(uint32_t replica, int64_t sent, const AckBytes& ack, int64_t now = 0) {
    WindowLock lock(window());
    const AckVerdict verdict = TakeAck(window(), replica, sent, ack, now == 0 ? sent + 5 : now);
    AdvanceDurable(window());
    return verdict;
  }
  Seq durable() const { return window().durable(); }
  bool Held(Seq seq, uint32_t replica) const {
    return (window().window().At(seq).held & ReplicaBit(replica)) != 0;
  }
  void Pending(ReplicaMask members) {
    WindowLock lock(window());
    header().rule.has_pending = true;
    header().rule.pending = {0, members, true};
  }

  TestWindow shared_{SmallSpec()};
};

TEST_F(DirectAcksTest, DurableWithFCopiesOfAllBefore) {
  EXPECT_EQ(Take(0, 100, Ack(0, 7)), AckVerdict::kCounted);
  EXPECT_EQ(durable(), 0u);
  EXPECT_EQ(Take(1, 100, Ack(1, 4)), AckVerdict::kCounted);
  EXPECT_EQ(durable(), 4u);
  Take(1, 200, Ack(1, 9));
  EXPECT_EQ(durable(), 7u);
}

TEST_F(DirectAcksTest, AnotherIncarnationDoesNotCount) {
  Take(0, 100, Ack(0, 5));
  AckBytes ack = Ack(1, 5);
  ack.incarnation = 0x9999;
  EXPECT_EQ(Take(1, 100, ack), AckVerdict::kOdd);
  header().peers[1].incarnation = 0;
  ack.incarnation = 0;
  EXPECT_EQ(Take(1, 100, ack), AckVerdict::kOdd);
  EXPECT_EQ(durable(), 0u);
  EXPECT_FALSE(Held(1, 1));
}

TEST_F(DirectAcksTest, FlagsAreForTheCoordinator) {
  Take(0, 100, Ack(0, 5));
  for (const uint16_t flag : {kAckMemoryFull, kAckUnknownSession, kAckFenced}) {
    AckBytes ack = Ack(1, 5);
    ack.flags = flag;
    EXPECT_EQ(Take(1, 100, ack), AckVerdict::kOdd);
  }
  EXPECT_EQ(durable(), 0u);
}

TEST_F(DirectAcksTest, RecordsNeverIssuedAreOdd) {
  EXPECT_EQ(Take(0, 100, Ack(0, 11)), AckVerdict::kOdd);
}

TEST_F(DirectAcksTest, RecordsBelowTheBaseAreNotHeld) {
  header().peers[1].base = 4;
  Take(0, 100, Ack(0, 10));
  Take(1, 100, Ack(1, 10));
  EXPECT_FALSE(Held(3, 1));
  EXPECT_TRUE(Held(4, 1));
  EXPECT_EQ(durable(), 0u);
}

TEST_F(DirectAcksTest, MemoryThatWentBackDoesNotCountAnyMore) {
  Take(0, 100, Ack(0, 10));
  Take(1, 100, Ack(1, 5), 200);
  EXPECT_EQ(durable(), 5u);
  // An answer to an earlier frame that was overtaken contradicts nothing.
  EXPECT_EQ(Take(1, 150, Ack(1, 3), 250), AckVerdict::kCounted);
  EXPECT_EQ(Take(1, 201, Ack(1, 4), 260), AckVerdict::kWentBack);
  EXPECT_EQ(Take(1, 300, Ack(1, 10)), AckVerdict::kOdd);
  EXPECT_EQ(durable(), 5u);
  // Opened again by the coordinator.
  window().window().Forget(ReplicaBit(1));
  header().heard[1] = {};
  EXPECT_EQ(Take(1, 400, Ack(1, 10)), AckVerdict::kCounted);
  EXPECT_EQ(durable(), 10u);
}

TEST_F(DirectAcksTest, TrimAndPromiseThatGoBackAreALoss) {
  AckBytes ack = Ack(0, 5);
  ack.trimmed = 3;
  ack.promise_epoch = 4;
  Take(0, 100, ack, 200);
  AckBytes trimmed = ack;
  trimmed.trimmed = 2;
  EXPECT_EQ(Take(0, 201, trimmed), AckVerdict::kWentBack);
  header().heard[0] = {};
  Take(0, 300, ack, 400);
  AckBytes promise = ack;
  promise.promise_epoch = 0;
  EXPECT_EQ(Take(0, 401, promise), AckVerdict::kWentBack);
}

TEST_F(DirectAcksTest, AnswerToAFrameFromBeforeReopeningIsIgnored) {
  header().peers[1].counts_from_ns = 500;
  Take(0, 600, Ack(0, 5));
  EXPECT_EQ(Take(1, 499, Ack(1, 5)), AckVerdict::kTooOld);
  EXPECT_EQ(durable(), 0u);
  EXPECT_EQ(Take(1, 500, Ack(1, 5)), AckVerdict::kCounted);
  EXPECT_EQ(durable(), 5u);
}

TEST_F(DirectAcksTest, NothingIsDurableBeforeCounting) {
  header().counting = 0;
  Take(0, 100, Ack(0, 5));
  Take(1, 100, Ack(1, 5));
  EXPECT_EQ(durable(), 0u);
  EXPECT_TRUE(Held(5, 1));
  header().counting = 1;
  {
    WindowLock lock(window());
    EXPECT_EQ(AdvanceDurable(window()).upto, 5u);
  }
  EXPECT_EQ(durable(), 5u);
}

TEST_F(DirectAcksTest, NothingIsDurableInAnotherPhase) {
  for (const Phase phase :
       {Phase::kLocal, Phase::kStamping, Phase::kGoingLocal, Phase::kEnded, Phase::kFailed}) {
    {
      WindowLock lock(window());
      SetPhase(window(), phase);
    }
    Take(0, 100, Ack(0, 5));
    Take(1, 100, Ack(1, 5));
    EXPECT_EQ(durable(), 0u);
  }
}

TEST_F(DirectAcksTest, PendingConfigurationNeedsItsCopiesToo) {
  header().replicas = 3;
  header().peers[2] = {};
  header().peers[2].incarnation = 0x1002;
  header().peers[2].base = 1;
  header().peers[2].counts_from_ns = INT64_MIN;
  Pending(ReplicaBit(1) | ReplicaBit(2));
  Take(0, 100, Ack(0, 8));
  Take(1, 100, Ack(1, 8));
  EXPECT_EQ(durable(), 0u);
  Take(2, 100, Ack(2, 6));
  EXPECT_EQ(durable(), 6u);
}

TEST_F(DirectAcksTest, NothingIsDurableUnderANoteThatNamesALostMember) {
  header().rule.awaits_note_of_loss = true;
  Take(0, 100, Ack(0, 5));
  Take(1, 100, Ack(1, 5));
  EXPECT_EQ(durable(), 0u);
}

TEST_F(DirectAcksTest, NonMemberIsHeldButDoesNotCount) {
  header().rule.noted.counted = ReplicaBit(0);
  Take(0, 100, Ack(0, 5));
  Take(1, 100, Ack(1, 5));
  EXPECT_EQ(durable(), 0u);
}

TEST_F(DirectAcksTest, CheckpointMovesDurable) {
  {
    WindowLock lock(window());
    EXPECT_EQ(PublishCheckpoint(window(), 6).upto, 6u);
  }
  EXPECT_EQ(durable(), 6u);
  EXPECT_EQ(window().window().checkpoint(), 6u);
  Take(0, 100, Ack(0, 9));
  Take(1, 100, Ack(1, 8));
  EXPECT_EQ(durable(), 8u);
}

class DirectDatagramTest : public DirectAcksTest {
 protected:
  void SetUp() override {
    DirectAcksTest::SetUp();
    from_.sin_family = AF_INET;
    from_.sin_port = htons(1234);
    from_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::memcpy(&header().peers[0].address, &from_, sizeof(from_));
    header().peers[0].address_bytes = sizeof(from_);
    frame_.type = FrameType::kAck;
    frame_.volume = header().volume;
    frame_.epoch = header().epoch;
    frame_.session = header().session;
    frame_.send_time_ns = 100;
    payload_.incarnation = 0x1000;
    payload_.base = 1;
    payload_.contiguous = 5;
    header().rule.acks = 1;
  }
  AckVerdict Feed(size_t cut = 0) {
    uint8_t bytes[kFrameHeaderBytes + kMaxAckBytes];
    frame_.payload_bytes =
        static_cast<uint32_t>(EncodeAckPayload(payload_, bytes + kFrameHeaderBytes));
    EncodeFrameHeader(frame_, bytes);
    Advanced advanced;
    return TakeDatagram(window(), bytes, kFrameHeaderBytes + frame_.payload_bytes - cut,
                        reinterpret_cast<sockaddr*>(&from_), 200, &advanced);
  }

  sockaddr_in from_{};
  FrameHeader frame_;
  AckPayload payload_;
};

TEST_F(DirectDatagramTest, GoodOneIsCountedAndInTheMailbox) {
  EXPECT_EQ(Feed(), AckVerdict::kCounted);
  EXPECT_EQ(durable(), 5u);
  const Mail& mail = header().mail[0].good;
  EXPECT_EQ(mail.count, 1u);
  EXPECT_EQ(mail.received_ns, 200);
  const auto frame = DecodeFrameHeader(absl::Span<const uint8_t>(mail.datagram, mail.bytes));
  EXPECT_TRUE(frame.ok());
  EXPECT_EQ(header().trouble.load(), 0u);
}

TEST_F(DirectDatagramTest, OddOneKicksAndIsInTheOtherMailbox) {
  payload_.flags = kAckFenced;
  EXPECT_EQ(Feed(), AckVerdict::kOdd);
  EXPECT_EQ(header().mail[0].odd.count, 1u);
  EXPECT_EQ(header().mail[0].good.count, 0u);
  EXPECT_EQ(header().trouble.load(), kTroubleOdd);
}

TEST_F(DirectDatagramTest, ForeignAndDamagedOnesDoNothing) {
  EXPECT_EQ(Feed(1), AckVerdict::kMalformed);
  frame_.session = 1;
  EXPECT_EQ(Feed(), AckVerdict::kForeign);
  frame_.session = header().session;
  frame_.epoch = 1;
  EXPECT_EQ(Feed(), AckVerdict::kForeign);
  frame_.epoch = header().epoch;
  from_.sin_port = htons(99);
  EXPECT_EQ(Feed(), AckVerdict::kForeign);
  EXPECT_EQ(durable(), 0u);
  EXPECT_EQ(header().mail[0].good.count + header().mail[0].odd.count, 0u);
}

}  // namespace
}  // namespace salius::direct
