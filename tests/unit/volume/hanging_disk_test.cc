// Answers while the file system is frozen and an apply hangs in it.
#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class HangingDiskTest : public VolumeFixture {
 protected:
  FakeStream& fake() { return FakeOf(volume->stream()); }

  // Freezes the disk and has a thread apply the next record, which hangs.
  void Hang(Node& node) {
    scratch->Freeze();
    {
      absl::MutexLock lock(&fake().mu);
      fake().disk_hangs = true;
    }
    applier = std::thread([this] { fake().ApplySome(1); });
    // Apply holds this lock over the system call.
    while (node.content.ReaderTryLock()) {
      node.content.ReaderUnlock();
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  void Thaw() {
    scratch->Thaw();
    applier.join();
    absl::MutexLock lock(&fake().mu);
    fake().disk_hangs = false;
  }

  std::thread applier;
};

TEST_F(HangingDiskTest, UnappliedDataIsReadWithoutTheDisk) {
  Make();
  Handle* const file = Create("f");
  Write(file, 0, std::string(8192, 'a'));
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  Write(file, 4096, std::string(8192, 'b'));
  Hang(file->node);
  EXPECT_EQ(Read(file, 0, 100000), std::string(4096, 'a') + std::string(8192, 'b'));
  bool provisional = false;
  const auto attr = volume->attrs().GetAttr(file->node, &provisional);
  EXPECT_TRUE(provisional);
  ASSERT_TRUE(attr.ok());
  EXPECT_EQ(attr->st_size, 12288);
  const auto found = volume->names().Lookup(root(), "f");
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->provisional);
  volume->names().Forget(*found->node, 1);
  for (const bool may_wait : {true, false}) {
    const auto listed = volume->names().LookupListed(root(), "f", file->node.ino, may_wait);
    ASSERT_TRUE(listed.ok());
    EXPECT_TRUE(listed->provisional);
    EXPECT_EQ(listed->attr.st_size, 12288);
    volume->names().Forget(*listed->node, 1);
  }
  const auto data = volume->files().Lseek(*file, 100, SEEK_DATA);
  EXPECT_EQ(data.value_or(0), 100u);
  EXPECT_EQ(volume->files().Lseek(*file, 100, SEEK_HOLE).value_or(0), 12288u);
  EXPECT_EQ(Errno(volume->files().Lseek(*file, 12288, SEEK_DATA)), ENXIO);
  EXPECT_TRUE(volume->StatFs().ok());
  // The file is written again, and opened and closed by other callers.
  Write(file, 0, "c", Contract::kDurable);
  Handle* const other = OpenFile(file->node, O_RDONLY);
  EXPECT_EQ(Read(other, 0, 2), "ca");
  volume->open_files().Release(other);
  Thaw();
  provisional = false;
  EXPECT_EQ(Stat(file->node).st_size, 12288);
  volume->open_files().Release(file);
  Close();
  EXPECT_EQ(BackingContent("f"), "c" + std::string(4095, 'a') + std::string(8192, 'b'));
}

// A thread for which no caller waits removes its link and frees its blocks.
TEST_F(HangingDiskTest, ClosedNamelessFileCountsAsFreeAndItsCloseDoesNotWait) {
  Make();
  Handle* const file = Create("f");
  Write(file, 0, "f");
  const auto before = volume->StatFs();
  ASSERT_TRUE(before.ok());
  auto made = volume->names().CreateTmpFile(root(), O_RDWR, 0600, caller);
  ASSERT_TRUE(made.ok());
  Write(made->handle, 0, std::string(kMiB, 't'));
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  Write(file, 0, "g");
  Hang(file->node);
  volume->open_files().Release(made->handle);
  volume->names().Forget(*made->entry.node, 1);
  const auto after = volume->StatFs();
  ASSERT_TRUE(after.ok());
  EXPECT_LE(before->f_bavail - after->f_bavail, 16u);
  Thaw();
  volume->open_files().Release(file);
  Close();
}

}  // namespace
}  // namespace salius
