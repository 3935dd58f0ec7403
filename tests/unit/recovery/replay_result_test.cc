// The results of replay, and the loop that plans again without a refused record.
#include "recovery/replay/replay_result.h"

#include <set>

#include "common/file.h"
#include "recovery/replay/replay.h"
#include "tests/unit/recovery/test_util.h"

namespace salius::recovery {
namespace {

using Kind = ReplayResult::Kind;

TEST(ReplayResultTest, KindFollowsFromTheStatus) {
  EXPECT_EQ(ReplayResult(absl::OkStatus()).kind(), Kind::kDone);
  EXPECT_EQ(ReplayResult(absl::ResourceExhaustedError("full")).kind(), Kind::kNoRoom);
  EXPECT_EQ(ReplayResult(absl::DataLossError("lost")).kind(), Kind::kStop);
}

TEST(ReplayResultTest, LeaveOutKeepsTheSeqAndTheError) {
  const ReplayResult result = ReplayResult::LeaveOut(ErrnoStatus(ENOSPC, "setxattr"), 9);
  EXPECT_EQ(result.kind(), Kind::kLeaveOut);
  EXPECT_FALSE(result.done());
  EXPECT_EQ(result.seq(), 9u);
  EXPECT_EQ(StatusErrno(result.status()), ENOSPC);
}

class ReplayRecordsTest : public ::testing::Test {
 protected:
  ReplayRecordsTest() {
    stamper_.Write(50, 0, "a");
    stamper_.Chmod(50, 0600);
    stamper_.Chmod(51, 0600);
    set_ = SetOf(stamper_.all());
  }
  // Replays the records on a file system that refuses those of `refused`.
  absl::StatusOr<ReplayPlan> Replay(const std::set<Seq>& refused) {
    return ReplayRecords(PointersTo(set_), &report_, [&](const ReplayPlan& plan) -> ReplayResult {
      ++attempts_;
      for (const auto& [id, object] : plan.objects) {
        for (const RecordView* record : object.ops) {
          if (refused.contains(record->seq())) {
            return ReplayResult::LeaveOut(absl::InvalidArgumentError("refused"), record->seq());
          }
          ++report_.files_changed;
        }
      }
      return absl::OkStatus();
    });
  }

  Stamper stamper_{7};
  RecordSet set_;
  RecoveryReport report_;
  int attempts_ = 0;
};

TEST_F(ReplayRecordsTest, RefusedRecordsAreLeftOutAndReported) {
  const absl::StatusOr<ReplayPlan> plan = Replay({2, 3});
  ASSERT_OK(plan.status());
  EXPECT_EQ(attempts_, 3);
  EXPECT_EQ(plan->left_out, (absl::flat_hash_set<FileId>{50, 51}));
  EXPECT_EQ(report_.refused, (std::vector<std::string>{"record 2: refused", "record 3: refused"}));
  EXPECT_EQ(report_.files_changed, 1u) << "each change counts once";
}

TEST_F(ReplayRecordsTest, RefusedRecordWhoseCallerDidNotWaitIsAnError) {
  stamper_.awaited = false;
  stamper_.Chmod(52, 0600);
  set_ = SetOf(stamper_.all());
  EXPECT_TRUE(absl::IsInvalidArgument(Replay({2, 4}).status()));
  EXPECT_EQ(attempts_, 2);
  EXPECT_EQ(report_.refused, std::vector<std::string>{"record 2: refused"});
}

TEST_F(ReplayRecordsTest, ErrorEndsTheLoop) {
  const auto plan =
      ReplayRecords(PointersTo(set_), &report_, [&](const ReplayPlan&) -> ReplayResult {
        ++attempts_;
        return absl::ResourceExhaustedError("full");
      });
  EXPECT_TRUE(absl::IsResourceExhausted(plan.status()));
  EXPECT_EQ(attempts_, 1);
}

// A record that is left out already cannot be the obstacle: the loop must not run for ever.
TEST_F(ReplayRecordsTest, RecordRefusedTwiceIsAnError) {
  const auto plan = ReplayRecords(PointersTo(set_), &report_, [&](const ReplayPlan&) {
    ++attempts_;
    return ReplayResult::LeaveOut(absl::InvalidArgumentError("refused"), 2);
  });
  EXPECT_TRUE(absl::IsInvalidArgument(plan.status()));
  EXPECT_EQ(attempts_, 2);
}

}  // namespace
}  // namespace salius::recovery
