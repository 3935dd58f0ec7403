// How the properties of the path to a replica are learnt, step by step.
#include "client/session/peer_path.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/limits.h"

namespace salius {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr uint64_t kLarge = 4300, kSmall = 300;

class PeerPathTest : public testing::Test {
 protected:
  // Sends one record of `bytes`, which arrives at the first time, or by its `resent`th re-send.
  void Record(uint64_t bytes, int resent) {
    ++seq_;
    size_ = path_.Send(now_, seq_, seq_, bytes, path_.WantsGroup(now_));
    for (int i = 0; i < resent; ++i) {
      now_ += 2 * kMs;
      path_.Resent(now_, seq_, seq_);
    }
    now_ += kMs;
    path_.Acked(now_, seq_);
  }
  void Records(int count, uint64_t bytes, int resent) {
    for (int i = 0; i < count; ++i) Record(bytes, resent);
  }
  // Sends records on a path on which datagrams larger than `fits` vanish.
  void Narrow(int count, uint64_t bytes, uint32_t fits) {
    for (int i = 0; i < count; ++i) {
      const bool through = bytes <= fits || path_.datagram_bytes() <= fits;
      Record(bytes, through ? 0 : 1);
    }
  }

  PeerPath path_;
  int64_t now_ = 1000 * kMs;
  Seq seq_ = 0;
  uint32_t size_ = 0;  // of the last Record
};

TEST_F(PeerPathTest, SizeThatAlwaysFailsIsGivenUpForTheNext) {
  path_.SetRoute(8972, false);
  Records(PeerPath::kFailures - 1, kLarge, 1);
  EXPECT_EQ(path_.datagram_bytes(), 8972u);
  Record(kLarge, 1);
  EXPECT_EQ(path_.datagram_bytes(), 1472u);
  Narrow(50, kLarge, 1472);
  EXPECT_EQ(path_.datagram_bytes(), 1472u);
  EXPECT_EQ(path_.route_bytes(), 8972u);
}

TEST_F(PeerPathTest, TransmissionsOfOtherProcessesTeachTheSizeToo) {
  path_.SetRoute(8972, false);
  // Sends one as another process does, on a path on which datagrams of more than 1472 bytes vanish.
  const auto send = [this](uint64_t bytes) {
    const uint32_t size = path_.NextDatagramBytes(now_);
    ++seq_;
    path_.NoticeSent(now_, seq_, seq_, bytes, size);
    if (std::min<uint64_t>(bytes, size) > 1472) path_.Resent(now_ += 2 * kMs, seq_, seq_);
    path_.Acked(now_ += kMs, seq_);
    return size;
  };
  for (int i = 0; i < PeerPath::kFailures; ++i) EXPECT_EQ(send(kLarge), 8972u) << i;
  EXPECT_EQ(send(kLarge), 1472u);
  EXPECT_EQ(path_.datagram_bytes(), 1472u);
  // The trial waits for one that is large enough, and ends with it.
  now_ += PeerPath::kFirstTrialNs;
  EXPECT_EQ(send(kSmall), 8972u);
  EXPECT_EQ(send(kLarge), 8972u);
  EXPECT_EQ(send(kLarge), 1472u);
  now_ += PeerPath::kFirstTrialNs;
  EXPECT_EQ(send(kLarge), 1472u) << "after twice as long";
}

TEST_F(PeerPathTest, TrialOfAnotherProcessRestoresTheSize) {
  path_.SetRoute(8972, false);
  Records(PeerPath::kFailures, kLarge, 1);
  ASSERT_EQ(path_.datagram_bytes(), 1472u);
  now_ += PeerPath::kFirstTrialNs;
  const uint32_t size = path_.NextDatagramBytes(now_);
  ASSERT_EQ(size, 8972u);
  ++seq_;
  path_.NoticeSent(now_, seq_, seq_, kLarge, size);
  EXPECT_EQ(path_.NextDatagramBytes(now_), 1472u) << "one trial at a time";
  EXPECT_TRUE(path_.Acked(now_ + kMs, seq_));
  EXPECT_EQ(path_.datagram_bytes(), 8972u);
}

TEST_F(PeerPathTest, ANarrowerWayTakesTheLastSize) {
  path_.SetRoute(8972, false);
  Narrow(100, kLarge, 1372);
  EXPECT_EQ(path_.datagram_bytes(), kDatagramPayloadAnyPath);
}

TEST_F(PeerPathTest, SmallRecordsThatGetThroughDoNotHideIt) {
  path_.SetRoute(8972, false);
  for (int i = 0; i < PeerPath::kFailures; ++i) {
    Record(kSmall, 0);
    Record(kLarge, 1);
  }
  EXPECT_EQ(path_.datagram_bytes(), 1472u);
}

TEST_F(PeerPathTest, OneSuccessBetweenFailuresKeepsTheSize) {
  path_.SetRoute(8972, false);
  for (int i = 0; i < 20; ++i) {
    Records(PeerPath::kFailures - 1, kLarge, 1);
    Record(kLarge, 0);
  }
  EXPECT_EQ(path_.datagram_bytes(), 8972u);
}

TEST_F(PeerPathTest, SmallRecordsThatFailSayNothingOfTheSize) {
  path_.SetRoute(8972, false);
  Records(50, kSmall, 1);
  EXPECT_EQ(path_.datagram_bytes(), 8972u);
}

TEST_F(PeerPathTest, RecordsSentAgainMoreThanOnceSayNothing) {
  path_.SetRoute(8972, true);
  Records(50, kLarge, 2);
  EXPECT_EQ(path_.datagram_bytes(), 8972u);
  EXPECT_FALSE(path_.group_unheard());
}

TEST_F(PeerPathTest, AnOutageIsOneFailureHoweverManyRecordsItMet) {
  path_.SetRoute(8972, true);
  for (int outage = 0; outage < 3; ++outage) {
    const Seq first = seq_ + 1;
    for (int i = 0; i < 40; ++i, ++seq_) path_.Send(now_, seq_ + 1, seq_ + 1, kLarge, true);
    now_ += 500 * kMs;
    for (Seq seq = first; seq <= seq_; ++seq) {
      now_ += kMs;
      path_.Resent(now_, seq, seq);
      path_.Acked(now_, seq);
    }
  }
  EXPECT_EQ(path_.datagram_bytes(), 8972u);
  EXPECT_FALSE(path_.group_unheard());
}

TEST_F(PeerPathTest, HolesOfOneTransmissionAreOneReSend) {
  path_.SetRoute(8972, false);
  for (int i = 0; i < PeerPath::kFailures; ++i) {
    path_.Send(now_, seq_ + 1, seq_ + 9, kLarge, false);
    now_ += 2 * kMs;
    path_.Resent(now_, seq_ + 2, seq_ + 3);
    path_.Resent(now_, seq_ + 5, seq_ + 5);
    seq_ += 9;
    now_ += kMs;
    path_.Acked(now_, seq_);
  }
  EXPECT_EQ(path_.datagram_bytes(), 1472u);
}

TEST_F(PeerPathTest, TheLargeSizeIsTriedAgainRarelyAndRestored) {
  path_.SetRoute(8972, false);
  Records(PeerPath::kFailures, kLarge, 1);
  Records(100, kLarge, 0);
  EXPECT_EQ(size_, 1472u) << "not before a minute";
  now_ += PeerPath::kFirstTrialNs;
  Record(kSmall, 0);
  EXPECT_EQ(size_, 1472u) << "a small record tries nothing";
  Record(kLarge, 1);
  EXPECT_EQ(size_, 8972u) << "the trial";
  EXPECT_EQ(path_.datagram_bytes(), 1472u);
  now_ += PeerPath::kFirstTrialNs;
  Record(kLarge, 0);
  EXPECT_EQ(size_, 1472u) << "after twice as long only";
  now_ += PeerPath::kFirstTrialNs;
  Record(kLarge, 0);
  EXPECT_EQ(size_, 8972u);
  EXPECT_EQ(path_.datagram_bytes(), 8972u);
}

TEST_F(PeerPathTest, TrialsNeverCease) {
  path_.SetRoute(8972, false);
  Records(PeerPath::kFailures, kLarge, 1);
  int trials = 0;
  for (int minute = 0; minute < 24 * 60; ++minute) {
    now_ += 60'000 * kMs;
    const bool due = path_.Send(now_, seq_ + 1, seq_ + 1, kLarge, false) == 8972;
    ++seq_;
    if (due) path_.Resent(now_ + kMs, seq_, seq_);
    path_.Acked(now_ + 2 * kMs, seq_);
    trials += due ? 1 : 0;
  }
  EXPECT_GE(trials, 24);
  EXPECT_LE(trials, 40);
}

TEST_F(PeerPathTest, AGroupThatNeverReachesItIsGivenUp) {
  path_.SetRoute(1232, true);
  Records(PeerPath::kFailures, kSmall, 1);
  EXPECT_TRUE(path_.group_unheard());
  EXPECT_FALSE(path_.WantsGroup(now_));
  EXPECT_EQ(path_.datagram_bytes(), 1232u);
  now_ += PeerPath::kFirstTrialNs;
  EXPECT_TRUE(path_.WantsGroup(now_));
  Record(kSmall, 0);
  EXPECT_FALSE(path_.group_unheard());
}

// Large records by a group: the size or the group may be at fault.
TEST_F(PeerPathTest, ADeafGroupCostsNoSize) {
  path_.SetRoute(8972, true);
  for (int i = 0; i < 100; ++i) Record(kLarge, path_.WantsGroup(now_) ? 1 : 0);
  EXPECT_TRUE(path_.group_unheard());
  EXPECT_EQ(path_.datagram_bytes(), 8972u);
}

TEST_F(PeerPathTest, ANarrowWayGivesTheGroupBack) {
  path_.SetRoute(8972, true);
  Narrow(100, kLarge, 1472);
  EXPECT_EQ(path_.datagram_bytes(), 1472u);
  now_ += PeerPath::kFirstTrialNs;
  Narrow(1, kSmall, 1472);
  EXPECT_FALSE(path_.group_unheard());
}

TEST_F(PeerPathTest, AnotherRouteResetsThePath) {
  path_.SetRoute(8972, true);
  Narrow(100, kLarge, 1372);
  path_.SetRoute(1472, true);
  EXPECT_EQ(path_.datagram_bytes(), 1472u);
  EXPECT_FALSE(path_.group_unheard());
}

TEST_F(PeerPathTest, ThisHostsOwnWayIsNeverNarrower) {
  path_.SetRoute(kDatagramPayloadLoopback, false);
  Records(100, 60'000, 1);
  EXPECT_EQ(path_.datagram_bytes(), kDatagramPayloadLoopback);
}

TEST_F(PeerPathTest, UnansweredProbeIsForgotten) {
  path_.SetRoute(8972, false);
  for (int i = 0; i < 1000; ++i, ++seq_) path_.Send(now_, seq_ + 1, seq_ + 1, kLarge, false);
  EXPECT_FALSE(path_.Acked(now_, seq_));
  EXPECT_EQ(path_.datagram_bytes(), 8972u);
}

}  // namespace
}  // namespace salius
