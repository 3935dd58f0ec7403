#include "client/session/gathering.h"

#include <gtest/gtest.h>

#include <limits>

namespace salius {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

class GatheringTest : public testing::Test {
 protected:
  void Issue(int64_t now, Seq durable = 0, uint64_t bytes = 1000) {
    window_->Add(bytes, now);
    gathering_.Issued(now, durable);
  }

  OwnedWindow window_ = NewWindow(512);
  Gathering gathering_{*window_, 1};
};

TEST_F(GatheringTest, RecordWithoutCallerWaitsForTheNextOne) {
  Issue(5);
  EXPECT_FALSE(gathering_.Release(5, SendWhen::kLater, 0));
  EXPECT_EQ(gathering_.sendable(), 0u);
  Issue(6);
  EXPECT_TRUE(gathering_.Release(7, SendWhen::kNow, 0));
  EXPECT_EQ(gathering_.sendable(), 2u);
  EXPECT_EQ(window_->At(1).sendable_ns, 7);
  EXPECT_EQ(window_->At(2).sendable_ns, 7);
  EXPECT_FALSE(gathering_.Release(8, SendWhen::kNow, 0));  // nothing is gathered
}

TEST_F(GatheringTest, OutputTriggeredKeepsMoreBackForLonger) {
  const GatherBounds bounds = OutputTriggered(64u << 20, 60'000 * kMs);
  Gathering gathering(*window_, 1, bounds);
  for (uint64_t bytes = 0; bytes + 50'000 < bounds.bytes; bytes += 50'000) {
    window_->Add(50'000, 1);
    gathering.Issued(1, 0);
    EXPECT_FALSE(gathering.Release(1, SendWhen::kLater, 0));
  }
  EXPECT_EQ(gathering.late_ns(), 1 + 5000 * kMs);
  gathering.ReleaseLate(5000 * kMs);
  EXPECT_EQ(gathering.sendable(), 0u);
  window_->Add(50'000, 2);
  gathering.Issued(2, 0);
  EXPECT_TRUE(gathering.Release(2, SendWhen::kLater, 0));  // enough is batched
}

TEST_F(GatheringTest, OutputTriggeredSendsWhenOneWaits) {
  Gathering gathering(*window_, 1, OutputTriggered(64u << 20, 60'000 * kMs));
  window_->Add(100, 1);
  gathering.Issued(1, 0);
  EXPECT_FALSE(gathering.Release(1, SendWhen::kLater, 0));
  EXPECT_TRUE(gathering.Release(1, SendWhen::kSoon, 0));
  EXPECT_EQ(gathering.sendable(), 1u);
}

TEST_F(GatheringTest, OutputTriggeredFitsSmallLogAndShortTau) {
  const GatherBounds bounds = OutputTriggered(64u << 10, 800 * kMs);
  EXPECT_EQ(bounds.bytes, 8u << 10);
  EXPECT_EQ(bounds.ns, 100 * kMs);
}

TEST_F(GatheringTest, FullDatagramIsReleased) {
  Issue(1, 0, 50'000);
  EXPECT_FALSE(gathering_.Release(1, SendWhen::kLater, 0));
  Issue(1, 0, 50'000);
  EXPECT_TRUE(gathering_.Release(1, SendWhen::kLater, 0));
}

TEST_F(GatheringTest, SoonWaitsForThoseSentBefore) {
  Issue(1);
  ASSERT_TRUE(gathering_.Release(1, SendWhen::kNow, 0));
  Issue(2);  // two are under way
  EXPECT_FALSE(gathering_.Release(2, SendWhen::kSoon, 0));
  EXPECT_TRUE(gathering_.soon());
  EXPECT_TRUE(gathering_.Release(3, SendWhen::kSoon, 1));
  EXPECT_FALSE(gathering_.soon());
}

TEST_F(GatheringTest, SoonDoesNotWaitWithFewUnderWay) {
  Issue(1);
  EXPECT_TRUE(gathering_.Release(1, SendWhen::kSoon, 0));
}

TEST_F(GatheringTest, PeakIsForgottenAfter128Records) {
  Issue(1);
  ASSERT_TRUE(gathering_.Release(1, SendWhen::kNow, 0));
  Issue(1);
  ASSERT_FALSE(gathering_.Release(1, SendWhen::kSoon, 0));
  for (Seq seq = 3; seq <= 128; ++seq) Issue(1, seq - 1);
  ASSERT_TRUE(gathering_.Release(1, SendWhen::kNow, 127));
  Issue(2, 128);
  EXPECT_TRUE(gathering_.Release(2, SendWhen::kSoon, 127));
}

TEST_F(GatheringTest, LateRecordsAreReleased) {
  EXPECT_EQ(gathering_.late_ns(), kNever);
  Issue(5);
  Issue(6);
  EXPECT_EQ(gathering_.late_ns(), 5 + kMs);
  gathering_.ReleaseLate(4 + kMs);
  EXPECT_EQ(gathering_.sendable(), 0u);
  gathering_.ReleaseLate(5 + kMs);
  EXPECT_EQ(gathering_.sendable(), 2u);
  EXPECT_EQ(gathering_.late_ns(), kNever);
}

}  // namespace
}  // namespace salius
