// The issuer without a volume: counts, results and cancelling.
#include <errno.h>
#include <fcntl.h>

#include <memory>
#include <utility>

#include "client/volume/issuer.h"
#include "client/volume/patch_memory.h"
#include "common/check.h"
#include "common/file.h"
#include "gtest/gtest.h"
#include "storage/backing.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/null_sink.h"

namespace salius {
namespace {

class IssuerAloneTest : public ::testing::Test {
 protected:
  IssuerAloneTest() {
    stream_.Set(std::make_unique<FakeStream>(sink_, 2));
    SALIUS_CHECK_OK(table_.MakeRoot(*OpenAt(AT_FDCWD, ".", O_PATH | O_DIRECTORY)));
  }
  FakeStream& fake() { return FakeOf(*stream_); }
  // Stamps an attribute record of the root.
  absl::StatusOr<RecordRef> IssueOnRoot() {
    RecordDraft draft;
    draft.op = Op::kSetAttr;
    draft.result = std::make_shared<ApplyResult>();
    absl::MutexLock lock(&table_.root().stream);
    return issuer_.IssueOn(table_.root(), std::move(draft));
  }
  uint64_t Unapplied() {
    absl::MutexLock lock(&table_.root().state);
    return table_.root().seen_records().unapplied;
  }

  NullSink sink_;
  const UniqueFd here_ = *OpenAt(AT_FDCWD, ".", O_RDONLY | O_DIRECTORY);
  StreamSlot stream_;
  NodeTable table_{LinuxBacking(), [this] { return stream_.issued(); }};
  SpaceGuard space_{LinuxBacking(), here_.get(), [] { return absl::OkStatus(); }};
  Predictions predictions_{LinuxBacking(), false};
  PatchMemory memory_{kDefaultPatchMemoryBytes};
  Issuer issuer_{LinuxBacking(), table_, predictions_, stream_, space_, memory_, 100};
};

TEST_F(IssuerAloneTest, IssuedRecordIsCountedAndNamesTheFile) {
  const auto record = IssueOnRoot();
  ASSERT_TRUE(record.ok());
  EXPECT_EQ((*record)->header().file_id, kRootFileId);
  EXPECT_EQ(Unapplied(), 1u);
  EXPECT_GT(space_.unapplied(), 0u);
}

TEST_F(IssuerAloneTest, FailedIssueLeavesNothingCounted) {
  fake().Fail(absl::InternalError("test"));
  EXPECT_EQ(StatusErrno(IssueOnRoot().status()), EIO);
  EXPECT_EQ(Unapplied(), 0u);
  EXPECT_EQ(space_.unapplied(), 0u);
}

TEST_F(IssuerAloneTest, FailedResultIsCancelledDurably) {
  sink_.status = ErrnoStatus(EACCES, "test");
  const auto record = IssueOnRoot();
  ASSERT_TRUE(record.ok());
  EXPECT_EQ(StatusErrno(issuer_.AwaitResult(*record)), EACCES);
  const auto cancels = fake().Issued(Op::kCancel);
  ASSERT_EQ(cancels.size(), 1u);
  EXPECT_EQ(cancels[0]->header().arg0, (*record)->seq());
  EXPECT_GE(fake().watermarks().durable, cancels[0]->seq());
}

TEST_F(IssuerAloneTest, BriefWaitEndsWhenTheDiskHangs) {
  ASSERT_TRUE(IssueOnRoot().ok());
  fake().disk_hangs = true;
  EXPECT_TRUE(absl::IsDeadlineExceeded(issuer_.AwaitNodeBriefly(table_.root())));
}

}  // namespace
}  // namespace salius
