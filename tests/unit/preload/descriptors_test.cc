// The table of a process's descriptors, while several threads use one number: each test makes their
// steps in one order.
#include "client/preload/descriptors.h"

#include <gtest/gtest.h>

#include <memory>

namespace salius::preload {
namespace {

constexpr int kFd = 5;

Descriptor TrackedFile(uint32_t index, const Descriptor& known) {
  Descriptor found = known;
  found.state = Descriptor::State::kTracked;
  found.file = {index, 1};
  return found;
}

class DescriptorsTest : public testing::Test {
 protected:
  // A look of another thread that begins now, and finds this file.
  Descriptor Look(uint32_t index) { return TrackedFile(index, table_->Get(kFd)); }
  Descriptor Stored() { return table_->Get(kFd); }
  void SetFile(uint32_t index) {
    table_->Set(kFd, Descriptor::State::kTracked, {index, 1}, Descriptor::kFullSync);
  }

  std::unique_ptr<Descriptors> table_ = std::make_unique<Descriptors>();
};

TEST_F(DescriptorsTest, EntryIsWhatWasSet) {
  EXPECT_EQ(Stored().state, Descriptor::State::kUnknown);
  SetFile(7);
  const Descriptor set = Stored();
  EXPECT_TRUE(set.tracked());
  EXPECT_EQ(set.file.index, 7u);
  EXPECT_EQ(set.marks, Descriptor::kFullSync);
  EXPECT_TRUE(table_->Still(kFd, set));
  SetFile(7);
  EXPECT_FALSE(table_->Still(kFd, set));
}

TEST_F(DescriptorsTest, LookIsStoredWithItsNewGeneration) {
  Descriptor look = Look(7);
  table_->SetIf(kFd, look);
  EXPECT_EQ(Stored().file.index, 7u);
  EXPECT_TRUE(table_->Still(kFd, look));
}

TEST_F(DescriptorsTest, LookFromBeforeAChangeIsNotStored) {
  Descriptor look = Look(7);
  table_->Forget(kFd);  // no entry yet
  SetFile(8);
  table_->SetIf(kFd, look);
  EXPECT_EQ(Stored().file.index, 8u);
  EXPECT_FALSE(table_->Still(kFd, look));
}

TEST_F(DescriptorsTest, NothingIsStoredWhileAnotherDescriptorTakesThePlace) {
  SetFile(7);
  const Descriptor before = Stored();
  table_->BeginChange(kFd);
  EXPECT_EQ(Stored().state, Descriptor::State::kUnknown);
  EXPECT_FALSE(table_->Still(kFd, before));
  Descriptor look = Look(7);
  table_->SetIf(kFd, look);
  EXPECT_EQ(Stored().state, Descriptor::State::kUnknown);
  EXPECT_FALSE(table_->Still(kFd, look));
  table_->EndChange(kFd, TrackedFile(8, {}));
  EXPECT_EQ(Stored().file.index, 8u);
  EXPECT_FALSE(table_->Still(kFd, look));
  EXPECT_TRUE(table_->Still(kFd, Stored()));
}

TEST_F(DescriptorsTest, OverlappingChangesLeaveTheEntryUnknown) {
  table_->BeginChange(kFd);
  table_->BeginChange(kFd);
  table_->EndChange(kFd, TrackedFile(7, {}));
  EXPECT_EQ(Stored().state, Descriptor::State::kUnknown);
  EXPECT_FALSE(table_->Still(kFd, Stored()));
  table_->EndChange(kFd, TrackedFile(8, {}));
  EXPECT_EQ(Stored().state, Descriptor::State::kUnknown);
  EXPECT_TRUE(table_->Still(kFd, Stored()));
  Descriptor look = Look(9);
  table_->SetIf(kFd, look);
  EXPECT_EQ(Stored().file.index, 9u);
}

TEST_F(DescriptorsTest, CloseAndOpenDuringAChangeLeaveTheEntryUnknown) {
  table_->BeginChange(kFd);
  table_->Forget(kFd);
  SetFile(7);
  EXPECT_EQ(Stored().state, Descriptor::State::kUnknown);
  table_->EndChange(kFd, TrackedFile(8, {}));
  EXPECT_EQ(Stored().state, Descriptor::State::kUnknown);
}

TEST_F(DescriptorsTest, LookDuringACloseIsForgotten) {
  SetFile(7);
  const uint32_t generation = table_->Forget(kFd);
  Descriptor look = Look(7);
  table_->SetIf(kFd, look);
  EXPECT_TRUE(Stored().tracked());
  table_->ForgetLooks(kFd, generation);
  EXPECT_EQ(Stored().state, Descriptor::State::kUnknown);
}

TEST_F(DescriptorsTest, LookDuringACloseIsNotStoredAfterIt) {
  SetFile(7);
  const uint32_t generation = table_->Forget(kFd);
  Descriptor look = Look(7);
  table_->ForgetLooks(kFd, generation);
  table_->SetIf(kFd, look);
  EXPECT_EQ(Stored().state, Descriptor::State::kUnknown);
}

TEST_F(DescriptorsTest, OpenOfAClosedNumberStays) {
  SetFile(7);
  const uint32_t generation = table_->Forget(kFd);
  table_->Forget(kFd);  // by the open
  Descriptor opened = Look(8);
  table_->ForgetLooks(kFd, generation);
  table_->SetIf(kFd, opened);
  EXPECT_TRUE(table_->Still(kFd, opened));
  table_->ForgetLooks(kFd, generation);
  EXPECT_EQ(Stored().file.index, 8u);
}

}  // namespace
}  // namespace salius::preload
