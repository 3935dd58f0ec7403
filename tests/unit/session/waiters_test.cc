// Leader, followers and callbacks.
#include "client/session/waiters.h"

#include <gtest/gtest.h>

#include <vector>

namespace salius {
namespace {

using Successor = Waiters::Successor;

DurableCallback Nothing() {
  return [](const absl::Status&) {};
}

std::vector<Seq> Seqs(const std::vector<Waiters::Callback>& callbacks) {
  std::vector<Seq> seqs;
  for (const Waiters::Callback& callback : callbacks) seqs.push_back(callback.seq);
  return seqs;
}

TEST(WaitersTest, CallbacksUpToDurableComeLowestFirst) {
  Waiters waiters(2);
  for (const Seq seq : {5, 2, 9, 2, 7}) waiters.Add(seq, Nothing());
  std::vector<Waiters::Callback> taken;
  waiters.TakeUpTo(1, taken);
  EXPECT_TRUE(taken.empty());
  waiters.TakeUpTo(7, taken);
  EXPECT_EQ(Seqs(taken), (std::vector<Seq>{2, 2, 5, 7}));
  EXPECT_TRUE(waiters.HasCallbacks());
  waiters.TakeAll(taken);
  EXPECT_EQ(taken.back().seq, 9u);
  EXPECT_FALSE(waiters.HasCallbacks());
}

TEST(WaitersTest, OneCallerLeadsWhileAcksCount) {
  Waiters waiters(2);
  EXPECT_FALSE(waiters.TryLead(/*acks_count=*/false));
  EXPECT_TRUE(waiters.TryLead(true));
  EXPECT_TRUE(waiters.HasLeader());
  EXPECT_FALSE(waiters.TryLead(true));
  EXPECT_EQ(waiters.StopLeading(), Successor::kNone);
  EXPECT_TRUE(waiters.TryLead(true));
}

TEST(WaitersTest, LeaderIsFollowedByAFollowerBeforeTheIoThread) {
  Waiters waiters(2);
  ASSERT_TRUE(waiters.TryLead(true));
  waiters.Add(1, Nothing());
  waiters.StartFollowing();
  EXPECT_EQ(waiters.StopLeading(), Successor::kFollower);
  EXPECT_EQ(waiters.StopFollowing(/*leaves=*/false), Successor::kNone);
  ASSERT_TRUE(waiters.TryLead(true));
  EXPECT_EQ(waiters.StopLeading(), Successor::kIoThread);
}

TEST(WaitersTest, FollowerThatLeavesHandsCallbacksToTheIoThread) {
  Waiters waiters(2);
  ASSERT_TRUE(waiters.TryLead(true));
  waiters.Add(9, Nothing());
  waiters.StartFollowing();
  waiters.StartFollowing();
  ASSERT_EQ(waiters.StopLeading(), Successor::kFollower);
  EXPECT_EQ(waiters.StopFollowing(/*leaves=*/true), Successor::kNone);  // another one follows
  EXPECT_EQ(waiters.StopFollowing(/*leaves=*/true), Successor::kIoThread);
}

TEST(WaitersTest, LeaderIsSeenOnceMoreAfterItLeft) {
  Waiters waiters(2);
  EXPECT_FALSE(waiters.TakeLeaderSeen());
  ASSERT_TRUE(waiters.TryLead(true));
  EXPECT_TRUE(waiters.TakeLeaderSeen());
  waiters.StopLeading();
  EXPECT_TRUE(waiters.TakeLeaderSeen());
  EXPECT_FALSE(waiters.TakeLeaderSeen());
}

TEST(WaitersTest, ManyWaitWhenMoreWaitedLatelyThanThereAreCpus) {
  Waiters waiters(2);
  for (int i = 0; i < 8; ++i) waiters.StartFollowing();
  EXPECT_FALSE(waiters.Many());
  for (int i = 0; i < 20; ++i) waiters.TryLead(false);
  EXPECT_TRUE(waiters.Many());
  for (int i = 0; i < 8; ++i) waiters.StopFollowing(true);
  for (int i = 0; i < 20; ++i) waiters.TryLead(false);
  EXPECT_FALSE(waiters.Many());
}

}  // namespace
}  // namespace salius
