// The applied watermark: its state for another process after this one died.
#include "log/applied_mark.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/log/test_dir.h"

namespace salius {
namespace {

TEST(AppliedMarkTest, NewFileSaysNothing) {
  TestDir dir;
  auto mark = AppliedMark::Open(dir.fd());
  ASSERT_TRUE(mark.ok()) << mark.status();
  EXPECT_EQ(mark->epoch(), 0u);
  EXPECT_EQ(mark->applied(), 0u);
}

TEST(AppliedMarkTest, SurvivesTheDeathOfTheProcess) {
  TestDir dir;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto mark = AppliedMark::Open(dir.fd());
    if (!mark.ok()) _exit(1);
    mark->Reset(7, 5);
    mark->Store(10);
    mark->Store(11);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  auto mark = AppliedMark::Open(dir.fd());
  ASSERT_TRUE(mark.ok());
  EXPECT_EQ(mark->epoch(), 7u);
  EXPECT_EQ(mark->applied(), 11u);
  EXPECT_EQ(mark->complaints(), 5u);
}

TEST(AppliedMarkTest, ResetStartsTheNextEpochFromZero) {
  TestDir dir;
  auto mark = AppliedMark::Open(dir.fd());
  ASSERT_TRUE(mark.ok());
  mark->Reset(7, 5);
  mark->Store(10);
  mark->Reset(8, 5);
  EXPECT_EQ(mark->epoch(), 8u);
  EXPECT_EQ(mark->applied(), 0u);
}

TEST(AppliedMarkTest, InMemoryIsTheSameWithoutAFile) {
  AppliedMark mark = AppliedMark::InMemory();
  mark.Reset(7, 5);
  mark.Store(10);
  AppliedMark moved = std::move(mark);
  AppliedMark other = AppliedMark::InMemory();
  other = std::move(moved);
  other.SyncBegins();
  EXPECT_EQ(other.applied(), 0u);
  other.SyncEnds(true);
  EXPECT_EQ(other.applied(), 10u);
}

TEST(AppliedMarkTest, SaysNothingDuringASync) {  // R15
  TestDir dir;
  auto mark = AppliedMark::Open(dir.fd());
  ASSERT_TRUE(mark.ok());
  mark->Reset(7, 5);
  mark->Store(10);
  mark->SyncBegins();
  mark->Store(11);  // a record that was just being applied
  EXPECT_EQ(mark->epoch(), 0u);
  EXPECT_EQ(AppliedMark::Open(dir.fd())->applied(), 0u) << "for who finds it after a SIGKILL";
  EXPECT_EQ(mark->complaints(), AppliedMark::kUnknownComplaints);
  mark->SyncEnds(true);
  EXPECT_EQ(mark->epoch(), 7u);
  EXPECT_EQ(AppliedMark::Open(dir.fd())->applied(), 11u);
}

TEST(AppliedMarkTest, AfterAFailedSyncItSaysNothingUntilTheNextSession) {  // R15
  TestDir dir;
  auto mark = AppliedMark::Open(dir.fd());
  ASSERT_TRUE(mark.ok());
  mark->Reset(7, 5);
  mark->Store(10);
  mark->SyncBegins();
  mark->SyncEnds(false);
  mark->Store(11);
  EXPECT_EQ(mark->epoch(), 0u);
  EXPECT_EQ(mark->applied(), 0u);
  mark->SyncBegins();
  mark->SyncEnds(true);  // does not bring back the data that the failed one lost
  EXPECT_EQ(mark->epoch(), 0u);
  mark->Reset(8, 5);
  EXPECT_EQ(mark->epoch(), 8u);
}

TEST(AppliedMarkTest, PageCutOffInsideResetSaysNothing) {
  TestDir dir;
  auto mark = AppliedMark::Open(dir.fd());
  ASSERT_TRUE(mark.ok());
  mark->Reset(7, 5);
  mark->Store(10);
  // The process died before the last store of Reset(8): the check still is epoch 7's.
  const uint64_t epoch = 8;
  const UniqueFd raw = dir.Open("applied", O_RDWR);
  ASSERT_TRUE(
      PwriteFull(raw.get(), {reinterpret_cast<const uint8_t*>(&epoch), sizeof(epoch)}, 8).ok());
  EXPECT_EQ(mark->epoch(), 0u);
  EXPECT_EQ(mark->applied(), 0u);
}

TEST(AppliedMarkTest, JunkSaysNothing) {
  TestDir dir;
  const UniqueFd raw = dir.Open("applied", O_RDWR | O_CREAT);
  const std::vector<uint8_t> junk(5000, 0x5A);
  ASSERT_TRUE(PwriteFull(raw.get(), junk, 0).ok());
  auto mark = AppliedMark::Open(dir.fd());
  ASSERT_TRUE(mark.ok());
  EXPECT_EQ(mark->epoch(), 0u);
  EXPECT_EQ(mark->applied(), 0u);
  mark->Reset(1, 5);
  EXPECT_EQ(mark->epoch(), 1u);
}

TEST(AppliedMarkTest, ShortFileIsFilled) {
  TestDir dir;
  const UniqueFd raw = dir.Open("applied", O_RDWR | O_CREAT);
  const std::vector<uint8_t> some(100, 0x5A);
  ASSERT_TRUE(PwriteFull(raw.get(), some, 0).ok());
  ASSERT_TRUE(AppliedMark::Open(dir.fd()).ok());
  EXPECT_EQ(*FileSize(raw.get()), 4096u);
}

TEST(AppliedMarkTest, MovesLikeAnyOwner) {
  TestDir dir;
  auto opened = AppliedMark::Open(dir.fd());
  ASSERT_TRUE(opened.ok());
  AppliedMark mark = std::move(*opened);
  mark.Reset(3, 5);
  auto other = AppliedMark::Open(dir.fd());
  ASSERT_TRUE(other.ok());
  *other = std::move(mark);
  other->Store(5);
  EXPECT_EQ(other->applied(), 5u);
}

TEST(AppliedMarkTest, MissingDirectoryIsAnError) { EXPECT_FALSE(AppliedMark::Open(-1).ok()); }

TEST(AppliedMarkDeathTest, GoingBackIsABug) {
  TestDir dir;
  auto mark = AppliedMark::Open(dir.fd());
  ASSERT_TRUE(mark.ok());
  mark->Reset(1, 5);
  mark->Store(5);
  EXPECT_DEATH(mark->Store(4), "never goes back");
}

}  // namespace
}  // namespace salius
