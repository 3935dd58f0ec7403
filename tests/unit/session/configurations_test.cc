#include "client/session/configurations.h"

#include <gtest/gtest.h>

namespace salius {
namespace {

class ConfigurationsTest : public testing::Test {
 protected:
  ConfigurationsTest() : window_(NewWindow(64)), configurations_(*window_, 2) {
    for (int i = 0; i < 3; ++i) configurations_.SetIncarnation(i, 100 + i);
  }

  // Returns a configuration with the first `members` replicas; 0: mode local.
  Configuration Make(int members, Seq checkpoint = 0) {
    Configuration config;
    config.mode = members == 0 ? Mode::kLocal : Mode::kReplicated;
    config.checkpoint = checkpoint;
    for (int i = 0; i < members; ++i) configurations_.AddMember(i, &config);
    return config;
  }
  void Write(const Configuration& config) {
    configurations_.Start(config);
    configurations_.Written();
  }

  OwnedWindow window_;
  Configurations configurations_;
};

TEST_F(ConfigurationsTest, RecordIsDurableWithAllBeforeIt) {
  Write(Make(3));
  for (int i = 0; i < 3; ++i) window_->Add(10, 1);
  window_->Hold(1, 1, ReplicaBit(0) | ReplicaBit(1));
  window_->Hold(3, 3, ReplicaBit(0) | ReplicaBit(1));
  EXPECT_EQ(configurations_.Advance(0, true), 1u);
  window_->At(2).stable = true;
  EXPECT_EQ(configurations_.Advance(1, true), 3u);
}

TEST_F(ConfigurationsTest, CopiesOfOthersThanMembersDoNotCount) {
  Write(Make(2));
  window_->Add(10, 1);
  window_->Hold(1, 1, ReplicaBit(1) | ReplicaBit(2));
  EXPECT_EQ(configurations_.Advance(0, true), 0u);
  EXPECT_FALSE(configurations_.Recoverable(1));
}

TEST_F(ConfigurationsTest, WithoutCountingOnlyTheStableLogHelps) {
  Write(Make(3));
  window_->Add(10, 1);
  window_->Hold(1, 1, ReplicaBit(0) | ReplicaBit(1) | ReplicaBit(2));
  EXPECT_EQ(configurations_.Advance(0, false), 0u);
  window_->At(1).stable = true;
  EXPECT_EQ(configurations_.Advance(0, false), 1u);
}

TEST_F(ConfigurationsTest, PendingNoteMustAlsoRecoverTheRecord) {
  Write(Make(3));
  configurations_.Start(Make(2));
  window_->Add(10, 1);
  window_->Hold(1, 1, ReplicaBit(1) | ReplicaBit(2));
  EXPECT_EQ(configurations_.Advance(0, true), 0u);
  window_->Hold(1, 1, ReplicaBit(0));
  EXPECT_EQ(configurations_.Advance(0, true), 1u);
}

TEST_F(ConfigurationsTest, LostMemberStopsEverythingUntilANoteWithoutIt) {
  Write(Make(3));
  configurations_.CountLoss(2);
  EXPECT_EQ(configurations_.members(), ReplicaBit(0) | ReplicaBit(1));
  EXPECT_TRUE(configurations_.AwaitsNoteOfLoss());
  window_->Add(10, 1);
  window_->At(1).stable = true;
  EXPECT_EQ(configurations_.Advance(0, true), 0u);
  Write(Make(2));
  EXPECT_FALSE(configurations_.AwaitsNoteOfLoss());
  EXPECT_EQ(configurations_.Advance(0, true), 1u);
}

TEST_F(ConfigurationsTest, AnotherIncarnationIsNoMember) {
  Write(Make(3));
  configurations_.SetIncarnation(1, 0);
  EXPECT_EQ(configurations_.members(), ReplicaBit(0) | ReplicaBit(2));
}

TEST_F(ConfigurationsTest, AllRecoverableLooksAtDurableRecordsAboveTheCheckpoint) {
  Write(Make(3));
  for (int i = 0; i < 2; ++i) window_->Add(10, 1);
  window_->Hold(1, 2, ReplicaBit(0) | ReplicaBit(1));
  EXPECT_TRUE(configurations_.AllRecoverable(Make(3), 2));
  EXPECT_FALSE(configurations_.AllRecoverable(Make(0), 2));
  EXPECT_TRUE(configurations_.AllRecoverable(Make(0), 0));
  window_->At(2).stable = true;
  EXPECT_TRUE(configurations_.AllRecoverable(Make(0, 1), 2));
}

TEST_F(ConfigurationsTest, ReplicatedStaysTheLastOneOfThatMode) {
  EXPECT_FALSE(configurations_.replicated().has_value());
  Write(Make(3));
  Write(Make(0));
  EXPECT_EQ(configurations_.noted().mode, Mode::kLocal);
  EXPECT_EQ(configurations_.replicated()->members, ReplicaBit(0) | ReplicaBit(1) | ReplicaBit(2));
  EXPECT_FALSE(configurations_.pending().has_value());
}

TEST_F(ConfigurationsTest, AllMembersHasThoseOfThePendingNote) {
  Write(Make(2));
  configurations_.Start(Make(3));
  EXPECT_EQ(configurations_.members(), ReplicaBit(0) | ReplicaBit(1));
  EXPECT_EQ(configurations_.all_members(), ReplicaBit(0) | ReplicaBit(1) | ReplicaBit(2));
}

}  // namespace
}  // namespace salius
