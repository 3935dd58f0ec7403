// The errors of callers when the disk is gone.
#include <errno.h>
#include <fcntl.h>

#include "log/record.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class RecordsOnDiskTest : public VolumeFixture {
 protected:
  FakeStream& fake() { return FakeOf(volume->stream()); }
};

// XFS then answers even fstat with an error.
TEST_F(RecordsOnDiskTest, RemovingANameOnADiskThatIsGoneIsAnError) {
  Make(400 * kMiB, "mkfs.xfs -q");
  Handle* const file = Create("a");
  fake().before_apply = [this](const RecordRef&) { scratch->Shutdown(); };
  EXPECT_NE(Errno(volume->names().Unlink(root(), "a")), 0);
  fake().before_apply = nullptr;
  EXPECT_EQ(Errno(volume->health()), EIO);
  volume->open_files().Release(file);
}

// XFS then answers even fstat with an error.
TEST_F(RecordsOnDiskTest, FileWithUnreadableAttributesIsNotLeftOpen) {
  Make(400 * kMiB, "mkfs.xfs -q");
  volume->open_files().Release(Create("a"));
  Node& node = Find("a");
  fake().before_issue = [this](Op op) {
    if (op == Op::kTruncate) scratch->Shutdown();
  };
  EXPECT_NE(Errno(volume->names().CreateFile(root(), "a", O_RDWR | O_TRUNC, 0644, caller)), 0);
  absl::MutexLock lock(&node.state);
  EXPECT_EQ(node.handles, 0u);
}

}  // namespace
}  // namespace salius
