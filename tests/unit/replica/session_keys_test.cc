// The keys of a replica's sessions: offers that are taken or refused, and keys that are forgotten.
#include "replica/session_keys.h"

#include "gtest/gtest.h"
#include "proto/frame_format.h"

namespace salius {
namespace {

SessionKeys::Offer OfferOf(uint32_t key_id, Epoch epoch = 1, uint8_t volume = 1) {
  SessionKeys::Offer offer;
  offer.session.volume.bytes[0] = volume;
  offer.session.epoch = epoch;
  offer.session.session = 77;
  offer.key_id = key_id;
  offer.record_key = SealKey{static_cast<uint8_t>(key_id)};
  offer.ack_sender = 1;
  return offer;
}

class SessionKeysTest : public testing::Test {
 protected:
  bool Has(uint32_t key_id) { return ring.Sealing(key_id) != nullptr; }

  KeyRing ring;
  SessionKeys keys{ring};
};

TEST_F(SessionKeysTest, SameOfferGetsTheSameAnswer) {
  const auto first = keys.Take(OfferOf(5));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*keys.Take(OfferOf(5)), *first);
}

TEST_F(SessionKeysTest, EachKeyAndEachProcessHasItsOwnAnswer) {
  KeyRing other_ring;
  SessionKeys other(other_ring);
  const SealKey first = *keys.Take(OfferOf(5));
  EXPECT_NE(*keys.Take(OfferOf(6)), first);
  EXPECT_NE(*other.Take(OfferOf(5)), first);
}

TEST_F(SessionKeysTest, SessionKeepsItsNewestKeys) {
  for (uint32_t id = 1; id <= SessionKeys::kMostKeys + 1; ++id)
    ASSERT_TRUE(keys.Take(OfferOf(id)).ok());
  EXPECT_FALSE(Has(1));
  for (uint32_t id = 2; id <= SessionKeys::kMostKeys + 1; ++id) EXPECT_TRUE(Has(id));
}

TEST_F(SessionKeysTest, LaterSessionForgetsTheKeysOfTheEarlier) {
  ASSERT_TRUE(keys.Take(OfferOf(5, 1)).ok());
  ASSERT_TRUE(keys.Take(OfferOf(6, 2)).ok());
  EXPECT_FALSE(Has(5));
  EXPECT_TRUE(absl::IsAborted(keys.Take(OfferOf(7, 1)).status()));
  EXPECT_TRUE(Has(6));
}

TEST_F(SessionKeysTest, IdOfAnotherVolumeIsRefused) {
  ASSERT_TRUE(keys.Take(OfferOf(5, 1, 1)).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(keys.Take(OfferOf(5, 1, 2)).status()));
}

TEST_F(SessionKeysTest, IdWithAnotherKeyIsRefused) {
  ASSERT_TRUE(keys.Take(OfferOf(5)).ok());
  SessionKeys::Offer offer = OfferOf(5);
  offer.record_key[3] ^= 1;
  EXPECT_TRUE(absl::IsAlreadyExists(keys.Take(offer).status()));
}

TEST_F(SessionKeysTest, ZeroIdsAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(keys.Take(OfferOf(0)).status()));
  SessionKeys::Offer offer = OfferOf(5);
  offer.ack_sender = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(keys.Take(offer).status()));
}

TEST_F(SessionKeysTest, PlainFramesAreAcceptedOfAPlainSessionOnly) {
  const FrameSession session = OfferOf(5).session;
  FrameHeader header;
  header.volume = session.volume;
  header.epoch = session.epoch;
  header.session = session.session;
  uint8_t frame[kFrameHeaderBytes];
  EncodeFrameHeader(header, frame);
  KeyRing::Opened opened;
  EXPECT_EQ(ring.Open(absl::MakeSpan(frame), &opened), SealRefusal::kUnsealed);
  ASSERT_TRUE(keys.TakePlain(session).ok());
  EXPECT_EQ(ring.Open(absl::MakeSpan(frame), &opened), SealRefusal::kNone);
  EXPECT_EQ(opened.frame.size(), kFrameHeaderBytes);
  // From its first key on the session is sealed for good.
  ASSERT_TRUE(keys.Take(OfferOf(5)).ok());
  EXPECT_EQ(ring.Open(absl::MakeSpan(frame), &opened), SealRefusal::kUnsealed);
  ASSERT_TRUE(keys.TakePlain(session).ok());
  EXPECT_EQ(ring.Open(absl::MakeSpan(frame), &opened), SealRefusal::kUnsealed);
}

TEST_F(SessionKeysTest, DroppedVolumesHaveNoKeys) {
  ASSERT_TRUE(keys.Take(OfferOf(5, 1, 1)).ok());
  ASSERT_TRUE(keys.Take(OfferOf(6, 1, 2)).ok());
  ASSERT_TRUE(keys.Take(OfferOf(7, 1, 3)).ok());
  keys.Drop(OfferOf(5, 1, 1).session.volume);
  EXPECT_FALSE(Has(5));
  keys.DropUnless([](const VolumeId& volume) { return volume.bytes[0] == 3; });
  EXPECT_FALSE(Has(6));
  EXPECT_TRUE(Has(7));
  EXPECT_EQ(keys.volumes(), 1u);
}

}  // namespace
}  // namespace salius
