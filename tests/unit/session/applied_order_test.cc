#include "client/session/applied_order.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"

namespace salius {
namespace {

// Makes a record with this result, as the volume has left it.
std::unique_ptr<Record> Make(Seq seq, Op op, const absl::Status& result, Seq arg0 = 0) {
  RecordDraft draft;
  draft.op = op;
  draft.arg0 = arg0;
  draft.result = std::make_shared<ApplyResult>(ApplyResult{result});
  auto record = std::make_unique<Record>(std::move(draft));
  record->stamp().seq = seq;
  return record;
}

TEST(AppliedOrderTest, RefusedRecordCountsWithItsCancel) {
  const absl::Status ok, refused = absl::InternalError("refused");
  AppliedOrder order;
  EXPECT_EQ(order.Applied(*Make(1, Op::kCreate, ok)), 1u);
  EXPECT_EQ(order.Applied(*Make(2, Op::kRename, refused)), 0u);
  EXPECT_EQ(order.Applied(*Make(3, Op::kCreate, refused)), 0u);
  EXPECT_EQ(order.Applied(*Make(4, Op::kCreate, ok)), 0u);
  EXPECT_EQ(order.Applied(*Make(5, Op::kCancel, ok, 2)), 0u) << "record 3 is not cancelled";
  EXPECT_EQ(order.Applied(*Make(6, Op::kCancel, ok, 3)), 6u);
}

}  // namespace
}  // namespace salius
