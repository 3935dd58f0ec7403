#include "client/session/stable_cursor.h"

#include <gtest/gtest.h>

#include <vector>

namespace salius {
namespace {

using Seqs = std::vector<Seq>;

class StableCursorTest : public testing::Test {
 protected:
  StableCursorTest() {
    for (int i = 0; i < 4; ++i) window_->Add(100, 1);
  }

  OwnedWindow window_ = NewWindow(64);
  StableCursor cursor_{*window_};
};

TEST_F(StableCursorTest, NothingIsWantedAtFirst) {
  EXPECT_FALSE(cursor_.wanted());
  EXPECT_EQ(cursor_.Take(1000), Seqs());
}

TEST_F(StableCursorTest, WantAllLeavesOutLaterRecords) {
  cursor_.WantAll();
  window_->Add(100, 2);
  EXPECT_EQ(cursor_.upto(), 4u);
  EXPECT_EQ(cursor_.Take(1000), (Seqs{1, 2, 3, 4}));
  EXPECT_FALSE(cursor_.wanted());
}

TEST_F(StableCursorTest, TakeStopsAtTheBytesButGivesOne) {
  cursor_.WantAll();
  EXPECT_EQ(cursor_.Take(250), (Seqs{1, 2}));
  EXPECT_EQ(cursor_.Take(1), Seqs{3});
  EXPECT_TRUE(cursor_.wanted());
}

TEST_F(StableCursorTest, RecordIsStableOnceAppended) {
  cursor_.WantAll();
  const Seqs batch = cursor_.Take(100);
  EXPECT_TRUE(window_->At(1).stable_in_flight);
  EXPECT_FALSE(window_->At(1).stable);
  cursor_.Appended(batch);
  EXPECT_FALSE(window_->At(1).stable_in_flight);
  EXPECT_TRUE(window_->At(1).stable);
}

TEST_F(StableCursorTest, RecordsWithoutRoomAreWantedAgain) {
  cursor_.WantAll();
  cursor_.Appended(cursor_.Take(100));
  const Seqs batch = cursor_.Take(200);
  EXPECT_TRUE(cursor_.NoRoom(batch));
  EXPECT_FALSE(window_->At(2).stable);
  EXPECT_EQ(cursor_.Take(1000), (Seqs{2, 3, 4}));
}

TEST_F(StableCursorTest, CheckpointedRecordsAreLeftOut) {
  cursor_.WantAll();
  const Seqs batch = cursor_.Take(200);
  window_->CutTo(3);
  cursor_.Appended(batch);
  EXPECT_FALSE(cursor_.NoRoom(batch));
  EXPECT_EQ(cursor_.Take(1000), Seqs{4});
}

}  // namespace
}  // namespace salius
