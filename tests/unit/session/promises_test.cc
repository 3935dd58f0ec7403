#include "client/session/promises.h"

#include <gtest/gtest.h>

namespace salius {
namespace {

class PromisesTest : public testing::Test {
 protected:
  PromisesTest()
      : window_(NewWindow(4)), configurations_(*window_, 2), promises_(configurations_, 2) {
    for (int i = 0; i < 3; ++i) promises_.Opened(1, i, 7000 + i);
  }

  // Starts a note with all three replicas as members.
  void StartNote() {
    Configuration config;
    config.mode = Mode::kReplicated;
    for (int i = 0; i < 3; ++i) {
      configurations_.AddMember(i, &config);
      config.store[i] = promises_.store(i);
    }
    configurations_.Start(config);
  }
  void Note() {
    StartNote();
    configurations_.Written();
  }

  OwnedWindow window_;
  Configurations configurations_;
  Promises promises_;
};

TEST_F(PromisesTest, OtherStoreBeforeAnyNoteIsNoDoubt) {
  EXPECT_FALSE(promises_.Opened(10, 0, 8000));
  EXPECT_EQ(promises_.in_doubt(), 0);
}

TEST_F(PromisesTest, OtherStoreAfterANoteIsInDoubt) {
  Note();
  EXPECT_FALSE(promises_.Opened(10, 1, 7001));  // the same store
  EXPECT_TRUE(promises_.Opened(10, 0, 8000));
  EXPECT_TRUE(promises_.Opened(10, 2, 0));  // keeps none over a reboot
  EXPECT_EQ(promises_.in_doubt(), ReplicaBit(0) | ReplicaBit(2));
  EXPECT_EQ(promises_.store(0), 8000u);
}

TEST_F(PromisesTest, ANoteThatIsBeingWrittenCountsToo) {
  StartNote();
  EXPECT_TRUE(promises_.Opened(10, 0, 8000));
}

TEST_F(PromisesTest, StoreOfAnotherMemberIsNoDoubt) {
  Note();
  EXPECT_FALSE(promises_.Opened(10, 0, 7001));
}

TEST_F(PromisesTest, DoubtEndsWithFWitnessesAskedSince) {
  Note();
  ASSERT_TRUE(promises_.Opened(10, 0, 8000));
  promises_.Answered(1, 11);
  promises_.Answered(2, 9);  // asked before
  EXPECT_EQ(promises_.EndDoubts(), 0);
  promises_.Answered(0, 12);  // its own store is not the member's
  EXPECT_EQ(promises_.EndDoubts(), 0);
  promises_.Answered(2, 10);
  EXPECT_EQ(promises_.EndDoubts(), ReplicaBit(0));
  EXPECT_EQ(promises_.in_doubt(), 0);
}

TEST_F(PromisesTest, PendingNoteNeedsItsOwnWitnesses) {
  Note();
  ASSERT_TRUE(promises_.Opened(10, 0, 8000));
  Configuration config;
  config.mode = Mode::kReplicated;
  configurations_.AddMember(0, &config);
  configurations_.AddMember(1, &config);
  config.store[1] = 7001;  // one member with a store: no two witnesses are possible
  configurations_.Start(config);
  promises_.Answered(1, 11);
  promises_.Answered(2, 11);
  EXPECT_EQ(promises_.EndDoubts(), 0);
  configurations_.Written();
  EXPECT_EQ(promises_.EndDoubts(), 0);
}

TEST_F(PromisesTest, AnswersOfAPredecessorDoNotCount) {
  Note();
  ASSERT_TRUE(promises_.Opened(10, 0, 8000));
  promises_.Answered(1, 11);
  promises_.Answered(2, 11);
  promises_.Opened(12, 2, 7000);  // the store of replica 0, at another name
  EXPECT_EQ(promises_.EndDoubts(), 0);
  promises_.Answered(2, 13);
  EXPECT_EQ(promises_.EndDoubts(), ReplicaBit(0));
}

}  // namespace
}  // namespace salius
