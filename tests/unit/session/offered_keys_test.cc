// The keys of a session at its primary: offers, answers, and changes without a pause.
#include "client/session/offered_keys.h"

#include <string>

#include "gtest/gtest.h"
#include "proto/frame_format.h"
#include "transport/key_ring.h"

namespace salius {
namespace {

FrameSession Session() {
  FrameSession session;
  session.volume.bytes[0] = 1;
  session.epoch = 2;
  session.session = 3;
  return session;
}

class OfferedKeysTest : public testing::Test {
 protected:
  OfferedKeysTest() { keys.Begin(Session()); }

  // Returns whether an acknowledgement of `replica` under the offer's key is accepted.
  SealRefusal Ack(const KeyOffer& offer, const SealKey& ack_key) {
    FrameHeader header;
    header.volume = Session().volume;
    header.epoch = Session().epoch;
    header.session = Session().session;
    std::string frame(kFrameHeaderBytes, '\0'), sealed(kFrameHeaderBytes + kSealBytes, '\0');
    EncodeFrameHeader(header, reinterpret_cast<uint8_t*>(frame.data()));
    const iovec part{frame.data(), frame.size()};
    auto* const bytes = reinterpret_cast<uint8_t*>(sealed.data());
    Sealer(ack_key).Seal({SealKind::kSealed, offer.key_id, offer.ack_sender, ++counter},
                         absl::MakeConstSpan(&part, 1), bytes);
    KeyRing::Opened opened;
    return ring.Open({bytes, sealed.size()}, &opened);
  }
  uint32_t Present() { return ring.Sealing(0)->key_id(); }
  // Gives `replica` every key that it lacks.
  void GiveAll(int replica) {
    while (const auto offer = keys.Next(replica)) keys.Took(replica, *offer, SealKey{9});
  }

  KeyRing ring;
  OfferedKeys keys{ring};
  uint64_t counter = 0;
};

TEST_F(OfferedKeysTest, AllReplicasGetOneRecordKeyAndSendersOfTheirOwn) {
  const KeyOffer a = keys.ForOpening(0), b = keys.ForOpening(1);
  EXPECT_EQ(a.key_id, b.key_id);
  EXPECT_EQ(a.record_key, b.record_key);
  EXPECT_NE(a.ack_sender, b.ack_sender);
  EXPECT_EQ(Present(), a.key_id);
}

TEST_F(OfferedKeysTest, AcknowledgementsNeedTheReplicasOwnKey) {
  const KeyOffer a = keys.ForOpening(0), b = keys.ForOpening(1);
  keys.Took(0, a, SealKey{1});
  keys.Took(1, b, SealKey{2});
  EXPECT_EQ(Ack(a, SealKey{1}), SealRefusal::kNone);
  EXPECT_EQ(Ack(b, SealKey{2}), SealRefusal::kNone);
  EXPECT_EQ(Ack(b, SealKey{1}), SealRefusal::kWrongTag);
}

TEST_F(OfferedKeysTest, LaterProcessOfAReplicaReplacesTheKeyOfTheEarlierOne) {
  const KeyOffer offer = keys.ForOpening(0);
  keys.Took(0, offer, SealKey{1});
  keys.Lost(0);
  ASSERT_TRUE(keys.Next(0).has_value());
  EXPECT_EQ(keys.Next(0)->key_id, offer.key_id);
  keys.Took(0, *keys.Next(0), SealKey{2});
  EXPECT_FALSE(keys.Next(0).has_value());
  EXPECT_EQ(Ack(offer, SealKey{1}), SealRefusal::kWrongTag);
  EXPECT_EQ(Ack(offer, SealKey{2}), SealRefusal::kNone);
}

TEST_F(OfferedKeysTest, KeyChangesWhenAllConnectedReplicasHaveTheNext) {
  GiveAll(0);
  GiveAll(1);
  const uint32_t first = Present();
  keys.StartChange();
  EXPECT_FALSE(keys.Advance(3));
  GiveAll(0);
  EXPECT_FALSE(keys.Advance(3));
  EXPECT_EQ(Present(), first);
  GiveAll(1);
  EXPECT_TRUE(keys.Advance(3));
  EXPECT_NE(Present(), first);
  EXPECT_EQ(keys.changes(), 1u);
}

TEST_F(OfferedKeysTest, SilentReplicaWithoutASessionDelaysNoChange) {
  GiveAll(0);
  keys.StartChange();
  GiveAll(0);
  EXPECT_TRUE(keys.Advance(1));
}

TEST_F(OfferedKeysTest, AnswerForAReplacedKeyIsIgnoredAndThePresentOneOffered) {
  GiveAll(0);
  const KeyOffer late = *keys.Next(1);
  keys.StartChange();
  GiveAll(0);
  ASSERT_TRUE(keys.Advance(1));
  keys.Took(1, late, SealKey{2});
  EXPECT_EQ(Ack(late, SealKey{2}), SealRefusal::kNoKey);
  ASSERT_TRUE(keys.Next(1).has_value());
  EXPECT_EQ(keys.Next(1)->key_id, Present());
}

TEST_F(OfferedKeysTest, AcknowledgementsUnderTheKeyBeforeCountUntilTheNextChange) {
  const KeyOffer before = keys.ForOpening(0);
  keys.Took(0, before, SealKey{1});
  keys.StartChange();
  GiveAll(0);
  ASSERT_TRUE(keys.Advance(1));
  EXPECT_EQ(Ack(before, SealKey{1}), SealRefusal::kNone);
  keys.StartChange();
  EXPECT_EQ(Ack(before, SealKey{1}), SealRefusal::kNoKey);
}

TEST_F(OfferedKeysTest, KeyBeforeCountsForAnIntervalAlsoAfterASlowChange) {
  const KeyOffer before = keys.ForOpening(0);
  keys.Took(0, before, SealKey{1});
  keys.ChangeWhenDue(1, 100);
  keys.ChangeWhenDue(100, 100);
  EXPECT_FALSE(keys.changing());
  keys.ChangeWhenDue(101, 100);
  EXPECT_TRUE(keys.changing());
  keys.ChangeWhenDue(500, 100);  // the replica has not answered yet
  GiveAll(0);
  ASSERT_TRUE(keys.Advance(1));
  keys.ChangeWhenDue(510, 100);
  keys.ChangeWhenDue(609, 100);
  EXPECT_FALSE(keys.changing());
  EXPECT_EQ(Ack(before, SealKey{1}), SealRefusal::kNone);
  keys.ChangeWhenDue(610, 100);
  EXPECT_TRUE(keys.changing());
  GiveAll(0);
  ASSERT_TRUE(keys.Advance(1));
  keys.ChangeWhenDue(1000, 0);
  EXPECT_FALSE(keys.changing());
}

TEST_F(OfferedKeysTest, ReplicaThatOpensDuringAChangeGetsThePresentKeyFirst) {
  GiveAll(0);
  keys.StartChange();
  EXPECT_EQ(keys.ForOpening(1).key_id, Present());
  keys.Took(1, keys.ForOpening(1), SealKey{9});
  ASSERT_TRUE(keys.Next(1).has_value());
  EXPECT_NE(keys.Next(1)->key_id, Present());
}

TEST_F(OfferedKeysTest, ReplicaThatSealsNothingGetsNoKeysUntilItIsOpenedAgain) {
  FrameHeader header;
  header.volume = Session().volume;
  header.epoch = Session().epoch;
  header.session = Session().session;
  std::string frame(kFrameHeaderBytes, '\0');
  auto* const bytes = reinterpret_cast<uint8_t*>(frame.data());
  EncodeFrameHeader(header, bytes);
  KeyRing::Opened opened;
  const auto plain = [&] { return ring.Open({bytes, frame.size()}, &opened); };
  GiveAll(0);
  keys.ForOpening(1);
  EXPECT_EQ(plain(), SealRefusal::kUnsealed);
  keys.SealsNothing(1);
  EXPECT_EQ(keys.plain(), 2);
  EXPECT_EQ(plain(), SealRefusal::kNone);
  EXPECT_FALSE(keys.Next(1).has_value());
  // It does not hold up a change of the others' key.
  keys.StartChange();
  EXPECT_FALSE(keys.Next(1).has_value());
  GiveAll(0);
  EXPECT_TRUE(keys.Advance(3));
  // A later process may take one.
  const KeyOffer offer = keys.ForOpening(1);
  EXPECT_EQ(keys.plain(), 0);
  EXPECT_EQ(plain(), SealRefusal::kUnsealed);
  keys.Took(1, offer, SealKey{2});
  keys.StartChange();
  GiveAll(0);
  EXPECT_FALSE(keys.Advance(3));
}

TEST_F(OfferedKeysTest, RefusedIdIsReplaced) {
  GiveAll(0);
  keys.StartChange();
  const KeyOffer refused = *keys.Next(0);
  keys.Refused(refused);
  ASSERT_TRUE(keys.changing());
  EXPECT_NE(keys.Next(0)->key_id, refused.key_id);
  // The present one is refused at an opening: the key changes without that replica.
  keys.Refused(keys.ForOpening(1));
  GiveAll(0);
  EXPECT_TRUE(keys.Advance(1));
}

}  // namespace
}  // namespace salius
