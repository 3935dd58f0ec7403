// Fences (B, C) and sessions (D), one test or table for each rule. The letters are those of
// replica/acceptor.h.
#include <string>

#include "common/limits.h"
#include "gtest/gtest.h"
#include "tests/unit/replica/acceptor_testing.h"

namespace salius {
namespace {

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

VolumeId NumberedVolume(uint32_t i) {
  VolumeId id = TestVolume();
  id.bytes[0] = static_cast<uint8_t>(i);
  id.bytes[1] = static_cast<uint8_t>(i >> 8);
  id.bytes[15] = 0xee;
  return id;
}

TEST_F(AcceptorTest, FenceOfTooManyVolumesIsRefused) {
  for (uint32_t i = 0; i < kMaxPromises; ++i) {
    ASSERT_TRUE(acceptor_->Fence(NumberedVolume(i), 1, 1).ok());
  }
  EXPECT_EQ(acceptor_->Fence(TestVolume(99), 1, 1).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Open(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(acceptor_->Forget(now_ + 61 * kSecond, NumberedVolume(7), false).ok());
  EXPECT_EQ(Open(), StatusCode::kOk);
}

TEST_F(AcceptorTest, PromisesTakeNoSlotFromSessions) {
  Format(uint64_t{8} << 20);
  SessionParams params = Params();
  params.memory_bytes = 1;
  for (uint32_t i = 0; i < 3 * arena_->geometry().slot_count; ++i) {
    params.volume = NumberedVolume(i);
    ASSERT_TRUE(acceptor_->OpenSession(now_, params).ok()) << i;
    ASSERT_TRUE(acceptor_->Fence(params.volume, 2, 5).value().accepted);
    ASSERT_TRUE(acceptor_->DropVolume(params.volume, 1).ok());
  }
  EXPECT_EQ(acceptor_->volume_count(), 0u);
  EXPECT_EQ(acceptor_->granted_bytes(), 0u);
  EXPECT_EQ(Open(), StatusCode::kOk);
}

// ---- promises outlive the host

TEST_F(AcceptorTest, AfterARebootAFencedSessionIsStillFenced) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  ASSERT_TRUE(Fence(2, 5));
  LoseMemory();
  EXPECT_EQ(Send({TestRecord(1)}).standing, Standing::kFenced);
  EXPECT_EQ(Ack().flags, kAckFenced);
  EXPECT_EQ(Ack().promise_epoch, 2u);
  EXPECT_EQ(Open(1), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Held().promised_epoch, 2u);
  EXPECT_FALSE(Held().known);  // G
  EXPECT_FALSE(Fence(2, 6));
  EXPECT_TRUE(Fence(2, 5));
  EXPECT_EQ(Open(2), StatusCode::kOk);
}

TEST_F(AcceptorTest, AfterARebootAnOlderSessionIsFencedByTheNewerOne) {
  ASSERT_EQ(Open(5), StatusCode::kOk);
  LoseMemory();
  EXPECT_EQ(Open(4), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Send({TestRecord(1, 10, 4)}, 4).standing, Standing::kFenced);
  EXPECT_EQ(Send({TestRecord(1, 10, 5)}, 5).standing, Standing::kUnknownVolume);
  EXPECT_FALSE(Fence(5, 9));
  EXPECT_EQ(Open(5), StatusCode::kOk);
  LoseMemory(/*with_promises=*/false);
  EXPECT_EQ(Open(4), StatusCode::kOk);
}

TEST_F(AcceptorTest, PromiseMissingInFileOrMemoryComesFromTheOther) {
  ASSERT_EQ(Open(1), StatusCode::kOk);
  ASSERT_TRUE(Fence(2, 5));
  Restart(/*with_promises=*/false);
  ASSERT_EQ(acceptor_->Promises(0).promises.size(), 1u);
  EXPECT_EQ(acceptor_->Promises(0).promises[0].promised, 2u);
  EXPECT_EQ(acceptor_->Promises(0).promises[0].opened, 1u);
  options_.promises = acceptor_->Promises(0).promises;
  options_.promises[0].promised = 7;
  acceptor_ = std::make_unique<Acceptor>(*arena_, options_, now_, nullptr);
  EXPECT_EQ(Held().promised_epoch, 7u);
  EXPECT_EQ(arena_->slot(0)->promise_epoch, 7u);
  EXPECT_EQ(Ack().flags, kAckFenced);
}

TEST_F(AcceptorTest, EachChangeOfAPromiseHasANewVersion) {
  uint64_t version = acceptor_->Promises(0).version;
  const auto changed = [&] {
    return std::exchange(version, acceptor_->Promises(version).version) != version;
  };
  ASSERT_EQ(Open(1), StatusCode::kOk);
  EXPECT_TRUE(changed());
  ASSERT_EQ(Open(1), StatusCode::kOk);
  EXPECT_FALSE(changed());
  ASSERT_TRUE(Fence(3, 5));
  EXPECT_TRUE(changed());
  ASSERT_TRUE(Fence(3, 5));
  EXPECT_FALSE(changed());
  ASSERT_FALSE(Fence(3, 6));
  EXPECT_FALSE(changed());
  ASSERT_TRUE(acceptor_->DropVolume(TestVolume(), 1).ok());
  EXPECT_TRUE(changed());
  ASSERT_TRUE(acceptor_->Forget(now_, TestVolume(), true).ok());
  EXPECT_TRUE(changed());
  EXPECT_TRUE(acceptor_->Promises(0).promises.empty());
}

// ---- forgetting a volume

TEST_F(AcceptorTest, AVolumeInUseIsForgottenByForceOnly) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  EXPECT_EQ(acceptor_->Forget(now_, TestVolume(), false).status().code(),
            StatusCode::kFailedPrecondition);
  Send({TestRecord(1)});
  now_ += 61 * kSecond;
  // It is silent, but its records may be nowhere else.
  EXPECT_EQ(acceptor_->Forget(now_, TestVolume(), false).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(Held().records, 1u);
  const auto forgotten = acceptor_->Forget(now_, TestVolume(), true);
  ASSERT_TRUE(forgotten.ok());
  EXPECT_TRUE(forgotten->known);
  EXPECT_EQ(forgotten->bytes, TestRecord(1).size());
  EXPECT_EQ(acceptor_->volume_count(), 0u);
  EXPECT_EQ(acceptor_->granted_bytes(), 0u);
  EXPECT_FALSE(acceptor_->Forget(now_, TestVolume(), false)->known);
}

TEST_F(AcceptorTest, ASilentVolumeWithEverythingOnItsDiskIsForgotten) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  Send({TestRecord(1)});
  Trim(1);
  now_ += 59 * kSecond;
  EXPECT_FALSE(acceptor_->Forget(now_, TestVolume(), false).ok());
  now_ += 2 * kSecond;
  EXPECT_TRUE(acceptor_->Forget(now_, TestVolume(), false).ok());
  EXPECT_EQ(acceptor_->Promises(0).promises.size(), 0u);
}

TEST_F(AcceptorTest, APromiseIsForgottenWhenItsRecoveryIsLongOver) {
  acceptor_->Tick(now_);
  ASSERT_TRUE(Fence(2, 5));
  EXPECT_FALSE(acceptor_->Forget(now_, TestVolume(), false).ok());
  const auto forgotten = acceptor_->Forget(now_ + 61 * kSecond, TestVolume(), false);
  ASSERT_TRUE(forgotten.ok());
  EXPECT_EQ(forgotten->promised, 2u);
  EXPECT_EQ(Open(1), StatusCode::kOk);
}

// ---- K: a session that was given a key takes sealed frames only

class SealedAcceptorTest : public AcceptorTest {
 protected:
  StatusCode OpenSealed(Epoch epoch = 1) {
    SessionParams params = Params(epoch);
    params.sealed = true;
    return acceptor_->OpenSession(now_, params).status().code();
  }
  // Sends record `seq`; returns whether it was answered.
  bool SendOne(Seq seq, bool sealed, Epoch epoch = 1) {
    const std::vector<std::string> records = {TestRecord(seq, 100, epoch)};
    const std::string payload = Join(records);
    return acceptor_
        ->OnFrame(now_, TestFrame(records, epoch, kSession), AsBytes(payload), sealed)
        .reply;
  }
};

TEST_F(SealedAcceptorTest, PlainFrameOfASealedSessionHasNoEffect) {
  ASSERT_EQ(OpenSealed(), StatusCode::kOk);
  EXPECT_FALSE(SendOne(1, /*sealed=*/false));
  EXPECT_EQ(Held().records, 0u);
  EXPECT_EQ(Drops(Drop::kUnsealed), 1u);
  EXPECT_TRUE(SendOne(1, /*sealed=*/true));
  EXPECT_EQ(Held().records, 1u);
  EXPECT_EQ(acceptor_->plain_sessions(), 0u);
  // Also after a restart, when the process knows no key.
  Restart();
  EXPECT_FALSE(SendOne(2, /*sealed=*/false));
  EXPECT_EQ(Held().records, 1u);
}

TEST_F(SealedAcceptorTest, SessionIsSealedFromItsFirstKeyOn) {
  ASSERT_EQ(Open(), StatusCode::kOk);
  EXPECT_EQ(acceptor_->plain_sessions(), 1u);
  EXPECT_TRUE(SendOne(1, /*sealed=*/false));
  ASSERT_EQ(OpenSealed(), StatusCode::kOk);
  EXPECT_FALSE(SendOne(2, /*sealed=*/false));
  // A later opening without a key takes nothing back.
  ASSERT_EQ(Open(), StatusCode::kOk);
  EXPECT_FALSE(SendOne(2, /*sealed=*/false));
  Restart();
  EXPECT_FALSE(SendOne(2, /*sealed=*/false));
  // The next session decides for itself.
  ASSERT_EQ(Open(2), StatusCode::kOk);
  EXPECT_TRUE(SendOne(1, /*sealed=*/false, 2));
}

// ---- J: no host takes all slots, memory or promises

TEST_F(AcceptorTest, KeyForASessionOpensNoSession) {
  SessionParams params = Params(3);
  params.existing_only = true;
  EXPECT_EQ(acceptor_->OpenSession(now_, params).status().code(), StatusCode::kNotFound);
  ASSERT_EQ(Open(2), StatusCode::kOk);
  EXPECT_EQ(acceptor_->OpenSession(now_, params).status().code(), StatusCode::kNotFound);
  ASSERT_EQ(Open(3), StatusCode::kOk);
  EXPECT_TRUE(acceptor_->OpenSession(now_, params).ok());
  // After the loss of its memory the replica holds nothing of the session: it must say so (I5).
  LoseMemory();
  EXPECT_EQ(acceptor_->OpenSession(now_, params).status().code(), StatusCode::kNotFound);
}

TEST_F(AcceptorTest, OneHostLeavesMemoryForOthers) {
  SessionParams params = Params();
  params.peer = PeerIdOf("10.0.0.1");
  params.memory_bytes = uint64_t{4} << 20;
  uint32_t opened = 0;
  absl::Status refused;
  while (refused.ok() && opened < 100) {
    params.volume = NumberedVolume(opened++);
    refused = acceptor_->OpenSession(now_, params).status();
  }
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("salius forget"), absl::string_view::npos) << refused;
  EXPECT_NE(refused.message().find("10.0.0.1"), absl::string_view::npos) << refused;
  params.peer = PeerIdOf("10.0.0.2");
  EXPECT_TRUE(acceptor_->OpenSession(now_, params).ok());
  // Its own volumes still work.
  params.peer = PeerIdOf("10.0.0.1");
  params.volume = NumberedVolume(0);
  params.epoch = 2;
  EXPECT_TRUE(acceptor_->OpenSession(now_, params).ok());
}

TEST_F(AcceptorTest, OneHostLeavesSlotsForOthers) {
  Format(uint64_t{64} << 20);
  options_.peer_share_percent = 10;
  Restart();
  SessionParams params = Params();
  params.peer = PeerIdOf("10.0.0.1");
  params.memory_bytes = 1;
  const uint32_t share = arena_->geometry().slot_count / 10;
  absl::Status status;
  uint32_t opened = 0;
  for (; status.ok() && opened < 2 * share; ++opened) {
    params.volume = NumberedVolume(opened);
    status = acceptor_->OpenSession(now_, params).status();
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_LE(opened, share + 1);
}

TEST_F(AcceptorTest, TheFirstVolumeOfAHostTakesWhatItNeeds) {
  SessionParams params = Params();
  params.peer = PeerIdOf("10.0.0.1");
  params.memory_bytes = uint64_t{22} << 20;  // of 32, plus a quarter of it
  EXPECT_TRUE(acceptor_->OpenSession(now_, params).ok());
}

TEST_F(AcceptorTest, OneHostLeavesPromisesForOthers) {
  options_.most_promises = 8;
  Restart();
  const PeerId one = PeerIdOf("10.0.0.1");
  for (uint32_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(acceptor_->Fence(NumberedVolume(i), 1, 1, one).ok());
  }
  EXPECT_EQ(acceptor_->Fence(NumberedVolume(7), 1, 1, one).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(acceptor_->Fence(NumberedVolume(3), 2, 1, one).ok());
  EXPECT_TRUE(acceptor_->Fence(NumberedVolume(7), 1, 1, PeerIdOf("10.0.0.2")).ok());
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
      {"the same session with a lower base", 0, 5, 77, 9, StatusCode::kAborted},
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
  // At the very end there is still room for the seqs that a trim looks at.
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

}  // namespace
}  // namespace salius
