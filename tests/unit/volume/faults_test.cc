// The errors of callers when single calls on the backing file system fail, and quotas. In memory, where
// a test plans the error.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <string>

#include "log/record.h"
#include "tests/unit/volume/fake_stream.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

using Call = MemoryBacking::Call;

class FaultsTest : public VolumeFixture {
 protected:
  FakeStream& fake() { return FakeOf(volume->stream()); }
  // Has the next call of the kind fail once a record with `op` is about to be applied.
  void FailWhenApplied(Op op, Call call, int error) {
    fake().before_apply = [=, this](const RecordRef& record) {
      if (record->header().op == op) memory->FailNth(call, 1, error);
    };
  }
  size_t ObjectsBeingMade() {
    return backing().ListDir(OpenBacking(".salius/tmp", O_RDONLY).get())->size();
  }
};

TEST_F(FaultsTest, FailedCreateIsCancelledAndLeavesNothing) {
  Make();
  FailWhenApplied(Op::kCreate, Call::kRename, ENOSPC);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), ENOSPC);
  fake().before_apply = nullptr;
  EXPECT_EQ(fake().Issued(Op::kCancel).size(), 1u);
  EXPECT_EQ(ObjectsBeingMade(), 0u);
  EXPECT_FALSE(IsThere("d"));
  EXPECT_TRUE(volume->health().ok());
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), 0);
}

// The object is made before anything is stamped.
TEST_F(FaultsTest, ObjectThatCannotBeMadeIsAnErrorWithoutARecord) {
  Make();
  for (const Call call : {Call::kMake, Call::kSetXattr}) {
    // It is tried again after removed files are freed.
    for (const int nth : {1, 2}) memory->FailNth(call, nth, ENOSPC);
    EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), ENOSPC);
    EXPECT_TRUE(fake().Issued(Op::kCreate).empty());
    EXPECT_EQ(ObjectsBeingMade(), 0u);
    EXPECT_FALSE(IsThere("d"));
  }
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), 0);
}

TEST_F(FaultsTest, DiskThatFailsWhenAnObjectIsMadeIsSyncedAtOnce) {
  Make();
  const int syncs = fake().syncs;
  for (const int nth : {1, 2}) memory->FailNth(Call::kMake, nth, ENOSPC);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), ENOSPC);
  EXPECT_EQ(fake().syncs, syncs + 1) << "that of the checkpoint which frees removed files";
  memory->FailNth(Call::kMake, 1, EIO);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), EIO);
  EXPECT_EQ(fake().syncs, syncs + 2);
}

TEST_F(FaultsTest, FailedNameOperationsAreCancelledAndChangeNothing) {
  Make();
  Handle* const file = Create("a");
  FailWhenApplied(Op::kLink, Call::kLink, EMLINK);
  EXPECT_EQ(Errno(volume->names().Link(file->node, root(), "b")), EMLINK);
  FailWhenApplied(Op::kRename, Call::kRename, EIO);
  EXPECT_EQ(Errno(volume->names().Rename(root(), "a", root(), "b", 0)), EIO);
  FailWhenApplied(Op::kUnlink, Call::kUnlink, EIO);
  EXPECT_EQ(Errno(volume->names().Unlink(root(), "a")), EIO);
  fake().before_apply = nullptr;
  EXPECT_EQ(fake().Issued(Op::kCancel).size(), 3u);
  EXPECT_TRUE(IsThere("a"));
  EXPECT_FALSE(IsThere("b"));
  EXPECT_EQ(Stat(file->node).st_nlink, 1u);
  // The file is still logged.
  Write(file, 0, "x", Contract::kDurable);
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 1u);
  volume->open_files().Release(file);
}

TEST_F(FaultsTest, FailedAttributeChangeIsCancelled) {
  Make();
  Handle* const file = Create("a");
  struct stat want {};
  want.st_mode = 0600;
  FailWhenApplied(Op::kSetAttr, Call::kSetAttr, EIO);
  EXPECT_EQ(Errno(volume->attrs().SetAttr(file->node, kSetMode, want)), EIO);
  FailWhenApplied(Op::kSetXattr, Call::kSetXattr, ENOSPC);
  EXPECT_EQ(Errno(volume->attrs().SetXattr(file->node, "user.a", "1", 0, false)), ENOSPC);
  fake().before_apply = nullptr;
  EXPECT_EQ(fake().Issued(Op::kCancel).size(), 2u);
  EXPECT_EQ(Stat(file->node).st_mode & 07777, 0644u);
  EXPECT_EQ(Errno(volume->attrs().GetXattr(file->node, "user.a")), ENODATA);
  volume->open_files().Release(file);
}

TEST_F(FaultsTest, UnlinkedFileWithUnreadableAttributesFailsTheVolume) {
  Make();
  Handle* const file = Create("a");
  FailWhenApplied(Op::kUnlink, Call::kStat, EIO);
  static_cast<void>(volume->names().Unlink(root(), "a"));
  EXPECT_EQ(Errno(volume->health()), EIO);
  volume->open_files().Release(file);
}

TEST_F(FaultsTest, FileWithUnreadableAttributesIsNotLeftOpen) {
  Make();
  volume->open_files().Release(Create("a"));
  Node& node = Find("a");
  FailWhenApplied(Op::kTruncate, Call::kStat, EIO);
  EXPECT_EQ(Errno(volume->names().CreateFile(root(), "a", O_RDWR | O_TRUNC, 0644, caller)), EIO);
  absl::MutexLock lock(&node.state);
  EXPECT_EQ(node.handles, 0u);
}

TEST_F(FaultsTest, DataOfAFailedApplyIsStillReadAndTheVolumeFails) {
  Make();
  Handle* const file = Create("a");
  for (uint64_t at = 0; at < 12288; at += 4096) Write(file, at, std::string(4096, 'a' + at / 4096));
  memory->FailNth(Call::kWrite, 1, EIO);
  EXPECT_EQ(Stat(file->node).st_size, 12288);
  EXPECT_EQ(Errno(volume->stream().health()), EIO);
  EXPECT_EQ(Read(file, 0, 12288),
            std::string(4096, 'a') + std::string(4096, 'b') + std::string(4096, 'c'));
  EXPECT_EQ(Errno(Fsync(file)), EIO);
  volume->open_files().Release(file);
}

TEST_F(FaultsTest, SizeIsRightAfterAFallocateThatCouldNotBeApplied) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "one");
  FailWhenApplied(Op::kFallocate, Call::kFallocate, ENOSPC);
  EXPECT_EQ(Errno(volume->files().Fallocate(*file, 0, 0, 1 << 20)), ENOSPC);
  fake().before_apply = nullptr;
  EXPECT_EQ(fake().Issued(Op::kCancel).size(), 1u);
  ASSERT_EQ(*volume->files().Write(*file, 0, "two", /*append=*/true, Contract::kPlain), 3u);
  EXPECT_EQ(Read(file, 0, 1 << 20), "onetwo");
  volume->open_files().Release(file);
}

TEST_F(FaultsTest, FailedSyncOfACheckpointTurnsTheVolumeReadOnly) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "x");
  memory->FailNth(Call::kSync, 1, EIO);
  EXPECT_FALSE(volume->stream().Checkpoint().ok());
  EXPECT_EQ(Errno(Fsync(file)), EIO);
  EXPECT_EQ(Errno(volume->names().MakeDir(root(), "d", 0755, caller)), EROFS);
  EXPECT_EQ(Errno(volume->Close()), EIO) << "never synced again as if nothing was lost";
  EXPECT_EQ(Read(file, 0, 10), "x");
  volume->open_files().Release(file);
}

TEST_F(FaultsTest, FailedFsyncOfABulkFileTurnsTheVolumeReadOnly) {
  config.bulk_limit_bytes = 64 * 1024;
  Make();
  volume->open_files().Release(Create("target"));
  Handle* const file = Create("a");
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  Write(file, 0, std::string(80 * 1024, 'b'));
  ASSERT_TRUE(fake().Issued(Op::kWrite).empty()) << "the file is bulk";
  memory->FailNth(Call::kSync, 1, EIO);
  EXPECT_EQ(Errno(volume->names().Rename(root(), "a", root(), "target", 0)), EIO);
  EXPECT_TRUE(fake().Issued(Op::kRename).empty());
  EXPECT_EQ(Errno(Fsync(file)), EIO);
  EXPECT_EQ(Errno(volume->health()), EIO);
  volume->open_files().Release(file);
}

TEST_F(FaultsTest, OwnerOverQuotaIsRefusedAndRootIsNot) {
  MakeClosed();
  memory->SetQuota(fs::QuotaType::kUser, 1000, {.bytes_hard = 4 * kMiB, .inodes_hard = 8});
  Open();
  Handle* const file = Create("f");
  uint64_t taken = 0;
  int error = 0;
  while (error == 0) {
    const auto written =
        volume->files().Write(*file, taken, std::string(128 * 1024, 'f'), false, Contract::kPlain);
    error = Errno(written);
    if (error == 0) taken += *written;
  }
  EXPECT_EQ(error, EDQUOT);
  EXPECT_GT(taken, 2 * kMiB);
  EXPECT_LE(taken, 4 * kMiB);
  Write(file, 0, "overwrite", Contract::kDurable);
  int inode_error = 0;
  for (int i = 0; i < 16 && inode_error == 0; ++i) {
    inode_error = Errno(volume->names().MakeDir(root(), "d" + std::to_string(i), 0755, caller));
  }
  EXPECT_EQ(inode_error, EDQUOT);
  auto created = volume->names().CreateFile(root(), "root", O_RDWR, 0644, Caller());
  ASSERT_TRUE(created.ok());
  Write(created->handle, 0, std::string(kMiB, 'r'), Contract::kDurable);
  volume->open_files().Release(created->handle);
  volume->open_files().Release(file);
}

}  // namespace
}  // namespace salius
