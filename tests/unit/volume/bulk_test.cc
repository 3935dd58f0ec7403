// Bulk files: past the log and back, and the protection of their data from older records (I3).
#include <string>

#include "common/metrics.h"
#include "log/record.h"
#include "tests/unit/volume/bulk_fixture.h"
#include "tests/unit/volume/fake_stream.h"

namespace salius {
namespace {

using BulkTest = BulkFixture;

TEST_F(BulkTest, PastTheLimitWritesGoToTheBackingFileAndAreNotLogged) {
  Make();
  Handle* const file = OldFile("a");
  const uint64_t entered = Transitions("bulk");
  const uint64_t bytes = GetCounter("salius_bulk_bytes_total", "").Value();
  MakeBulk(file);
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 4u);
  EXPECT_EQ(Transitions("bulk"), entered + 1);
  EXPECT_EQ(GetCounter("salius_bulk_bytes_total", "").Value(), bytes + 16 * 1024);
  EXPECT_EQ(BackingContent("a"), std::string(80 * 1024, 'b'));
  EXPECT_EQ(Read(file, 0, 1 << 20), std::string(80 * 1024, 'b'));
  // The last logged write was applied before the first direct one.
  EXPECT_EQ(fake().applied, fake().Issued(Op::kWrite).back()->seq());
  volume->open_files().Release(file);
}

// Past the log they would have to wait for their pages.
TEST_F(BulkTest, ShortOverwritesMakeNoFileBulk) {
  Make();
  Handle* const file = OldFile("a");
  std::string content(60 * 1024, 'b');
  Write(file, 0, content, Contract::kDurable);
  const uint64_t entered = Transitions("bulk");
  for (int i = 0; i < 100; ++i) {
    const std::string data(1000, static_cast<char>('c' + i % 20));
    Write(file, i * 600, data);
    content.replace(i * 600, data.size(), data);
  }
  EXPECT_EQ(Transitions("bulk"), entered);
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 101u);
  for (int i = 0; i < 70; ++i) {
    Write(file, content.size(), std::string(1000, 'z'));
    content.append(1000, 'z');
  }
  EXPECT_EQ(Transitions("bulk"), entered + 1);
  EXPECT_EQ(Read(file, 0, 1 << 20), content);
  volume->open_files().Release(file);
}

TEST_F(BulkTest, AppendsContinueAtTheEndInBulkAndAfterIt) {
  Make();
  Handle* const file = OldFile("a");
  std::string all(MakeBulk(file), 'b');
  for (const char* const text : {"one", "two"}) {
    ASSERT_EQ(*volume->files().Write(*file, 0, text, /*append=*/true, Contract::kPlain), 3u);
    all += text;
  }
  EXPECT_EQ(BackingContent("a"), all);  // not logged
  ASSERT_TRUE(Fsync(file).ok());
  ASSERT_EQ(*volume->files().Write(*file, 0, "three", /*append=*/true, Contract::kPlain), 5u);
  EXPECT_EQ(Read(file, 0, 1 << 20), all + "three");
  volume->open_files().Release(file);
}

TEST_F(BulkTest, FsyncMakesOnDiskDurableAndTheFileIsLoggedAgain) {
  Make();
  Handle* const file = OldFile("a");
  const uint64_t end = MakeBulk(file);
  const Seq last = fake().Issued(Op::kWrite).back()->seq();
  const uint64_t left = Transitions("logged");
  ASSERT_TRUE(Fsync(file).ok());
  const auto on_disk = fake().Issued(Op::kOnDisk);
  ASSERT_EQ(on_disk.size(), 1u);
  EXPECT_EQ(on_disk[0]->header().arg0, last);
  EXPECT_EQ(on_disk[0]->header().file_id, fake().Issued(Op::kWrite)[0]->header().file_id);
  EXPECT_GE(fake().durable, on_disk[0]->seq());
  EXPECT_EQ(Transitions("logged"), left + 1);
  Write(file, end, "logged");
  EXPECT_EQ(fake().Issued(Op::kWrite).back()->header().arg0, end);
  EXPECT_GT(fake().Issued(Op::kWrite).back()->seq(), on_disk[0]->seq());
  volume->open_files().Release(file);
}

TEST_F(BulkTest, SynchronousWriteToABulkFileSyncsAllOfIt) {
  Make();
  Handle* const file = OldFile("a");
  const uint64_t end = MakeBulk(file);
  Write(file, end, "sync", Contract::kDurable);
  EXPECT_EQ(fake().Issued(Op::kOnDisk).size(), 1u);
  EXPECT_GE(fake().durable, fake().Issued(Op::kOnDisk)[0]->seq());
  EXPECT_EQ(Read(file, end, 10), "sync");
  volume->open_files().Release(file);
}

TEST_F(BulkTest, SyncsKeepAFileFromBecomingBulk) {
  Make();
  Handle* const file = OldFile("a");
  for (int i = 0; i < 20; ++i) {
    Write(file, 0, std::string(32 * 1024, 'x'));
    if (i % 2 == 0) {
      ASSERT_TRUE(Fsync(file).ok());
    }
  }
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 20u);
  volume->open_files().Release(file);
}

TEST_F(BulkTest, FileWhoseNameIsNotOnDiskIsSyncedByACheckpoint) {
  Make();
  Handle* const file = Create("new");
  MakeBulk(file);
  const int syncs = fake().syncs;
  ASSERT_TRUE(Fsync(file).ok());
  EXPECT_EQ(fake().syncs, syncs + 1);
  EXPECT_TRUE(fake().Issued(Op::kOnDisk).empty());
  EXPECT_GE(fake().checkpoint, fake().Issued(Op::kWrite).back()->seq());
  volume->open_files().Release(file);
}

TEST_F(BulkTest, FsyncThroughALaterHandleCoversBulkDataOfAClosedOne) {
  Make();
  Handle* file = OldFile("a");
  MakeBulk(file);
  Node& node = file->node;
  volume->open_files().Release(file);
  volume->names().Forget(node, 1);
  file = OpenFile(Find("a"));
  ASSERT_TRUE(Fsync(file).ok());
  EXPECT_GE(fake().checkpoint, fake().Issued(Op::kWrite).back()->seq())
      << "this descriptor may not hear what befell those records";
  EXPECT_TRUE(fake().Issued(Op::kOnDisk).empty());
  volume->open_files().Release(file);
}

// A descriptor does not report data of another descriptor whose write-back failed before it was
// opened.
TEST_F(BulkTest, BulkDataOfAClosedDescriptorIsSyncedWithTheFileSystem) {
  Make();
  Handle* file = OldFile("a");
  uint64_t end = MakeBulk(file);
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  Write(file, end++, "x");
  Node& node = file->node;
  volume->open_files().Release(file);
  file = OpenFile(node);
  int syncs = fake().syncs;
  ASSERT_TRUE(Fsync(file).ok());
  EXPECT_EQ(fake().syncs, syncs + 1);
  // All of that is synced now, and later writes go through descriptors that are still open.
  volume->open_files().Release(file);
  file = OpenFile(node);
  syncs = fake().syncs;
  MakeBulk(file);
  Write(file, end++, "x");
  ASSERT_TRUE(Fsync(file).ok());
  EXPECT_EQ(fake().syncs, syncs);
  volume->open_files().Release(file);
}

TEST_F(BulkTest, RecordsOfAForgottenNodeAreCoveredByACheckpoint) {
  Make();
  Handle* file = OldFile("a");
  Write(file, 0, "logged before", Contract::kDurable);
  fake().ApplySome(SIZE_MAX);
  const Seq logged = fake().Issued(Op::kWrite).back()->seq();
  Node& node = file->node;
  volume->open_files().Release(file);
  volume->names().Forget(node, 1);
  file = OpenFile(Find("a"));
  Write(file, 0, std::string(128 * 1024, 'b'));  // bulk at once: this node has no record of its own
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 1u);
  ASSERT_TRUE(Fsync(file).ok());
  EXPECT_TRUE(fake().Issued(Op::kOnDisk).empty());
  EXPECT_GE(fake().checkpoint, logged) << "an older record could be replayed over synced data";
  volume->open_files().Release(file);
}

// No fsync reports an error of the descriptor through which they were applied.
TEST_F(BulkTest, RecordsThatWereAppliedAfterACloseAreCoveredByACheckpoint) {
  Make();
  Handle* file = OldFile("a");
  Node& node = file->node;
  Write(file, 0, "logged", Contract::kDurable);
  const Seq logged = fake().Issued(Op::kWrite).back()->seq();
  volume->open_files().Release(file);
  fake().ApplySome(SIZE_MAX);
  file = OpenFile(node);
  Write(file, 0, std::string(128 * 1024, 'b'));  // bulk at once
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 1u);
  ASSERT_TRUE(Fsync(file).ok());
  EXPECT_TRUE(fake().Issued(Op::kOnDisk).empty());
  EXPECT_GE(fake().checkpoint, logged) << "an error of its write-back could be missed";
  volume->open_files().Release(file);
}

TEST_F(BulkTest, CheckpointsThatCoverAFileEndBulk) {
  Make();
  Handle* const file = OldFile("a");
  const uint64_t end = MakeBulk(file);
  const uint64_t left = Transitions("logged");
  // The first sync covers its bytes, and notes its records; the second one finds that out.
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  EXPECT_EQ(Transitions("logged"), left);
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  EXPECT_EQ(Transitions("logged"), left + 1);
  Write(file, end, "logged");
  EXPECT_EQ(fake().Issued(Op::kWrite).back()->header().arg0, end);
  volume->open_files().Release(file);
}

TEST_F(BulkTest, DirectWriteAfterTheSyncKeepsTheFileBulk) {
  Make();
  Handle* const file = OldFile("a");
  uint64_t end = MakeBulk(file);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(volume->stream().Checkpoint().ok());
    Write(file, end++, "x");
  }
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 4u);
  volume->open_files().Release(file);
}

// Recovery may repeat earlier records of the log, for which there is no room beside the blocks that
// took theirs.
TEST_F(BulkTest, TruncateAndFallocateOfABulkFileAreLoggedAndComeBetweenItsWrites) {
  Make();
  Handle* const file = OldFile("a");
  const uint64_t end = MakeBulk(file);
  struct stat want {};
  want.st_size = 1000;
  ASSERT_TRUE(volume->attrs().SetAttr(file->node, kSetSize, want).ok());
  ASSERT_EQ(fake().Issued(Op::kTruncate).size(), 1u);
  EXPECT_EQ(fake().Issued(Op::kTruncate)[0]->header().arg0, 1000u);
  Write(file, end, "x");
  EXPECT_EQ(Read(file, 900, end), std::string(100, 'b') + std::string(end - 1000, '\0') + "x");
  want.st_size = 2000;
  ASSERT_TRUE(volume->attrs().SetAttr(file->node, kSetSize, want).ok());
  ASSERT_TRUE(volume->files().Fallocate(*file, 0, 0, 5000).ok());
  ASSERT_EQ(fake().Issued(Op::kFallocate).size(), 1u);
  EXPECT_EQ(Stat(file->node).st_size, 5000);
  EXPECT_EQ(*volume->files().Write(*file, 0, "end", /*append=*/true, Contract::kPlain), 3u);
  EXPECT_EQ(Stat(file->node).st_size, 5003);
  EXPECT_EQ(fake().Issued(Op::kWrite).size(), 4u) << "the file is bulk still";
  // None of them may be repeated over data that an fsync put on the disk.
  ASSERT_TRUE(Fsync(file).ok());
  ASSERT_EQ(fake().Issued(Op::kOnDisk).size(), 1u);
  EXPECT_EQ(fake().Issued(Op::kOnDisk)[0]->header().arg0, fake().Issued(Op::kFallocate)[0]->seq());
  EXPECT_EQ(BackingContent("a").size(), 5003u);
  volume->open_files().Release(file);
}

TEST_F(BulkTest, SpaceOfARemovedFileIsFreeWhenItIsClosed) {
  if (DefaultWorld().disk == TestWorld::Disk::kXfs) {
    GTEST_SKIP() << "XFS frees blocks in the background";
  }
  Make();
  const auto free_blocks = [this] { return backing().StatVfs(backing_root())->f_bfree; };
  const auto bulk = [this](const std::string& name) {
    Handle* const file = OldFile(name);
    MakeBulk(file);
    SALIUS_CHECK_OK(backing().Fsync(file->fd->get()));  // delayed allocation counts as free
    return file;
  };
  const uint64_t before = free_blocks();
  Handle* file = bulk("unlinked");
  Node* node = &file->node;
  ASSERT_LT(free_blocks(), before);
  ASSERT_TRUE(volume->names().Unlink(root(), "unlinked").ok());
  volume->open_files().Release(file);
  volume->names().Forget(*node, 1);
  EXPECT_EQ(free_blocks(), before);

  file = bulk("displaced");
  node = &file->node;
  volume->open_files().Release(Create("other"));
  ASSERT_TRUE(volume->names().Rename(root(), "other", root(), "displaced", 0).ok());
  volume->open_files().Release(file);
  volume->names().Forget(*node, 1);
  EXPECT_EQ(free_blocks(), before);
}

// Only the page cache has the new data, and the rename is durable at once.
TEST_F(BulkTest, RenameOverAnotherFileSyncsBulkDataFirst) {
  Make();
  volume->open_files().Release(Create("target"));
  Handle* const old = OldFile("old");
  MakeBulk(old);
  ASSERT_TRUE(volume->names().Rename(root(), "old", root(), "target", 0).ok());
  const auto on_disk = fake().Issued(Op::kOnDisk);
  ASSERT_EQ(on_disk.size(), 1u);
  EXPECT_LT(on_disk[0]->seq(), fake().Issued(Op::kRename).back()->seq());
  volume->open_files().Release(old);

  // The disk may not have the name of a new file: its data is synced by a checkpoint.
  Handle* const young = Create("young");
  Node& node = young->node;
  MakeBulk(young);
  volume->open_files().Release(young);
  const int before = fake().syncs;
  int syncs = before;
  fake().before_issue = [&](Op op) {
    if (op == Op::kRename) syncs = fake().syncs;
  };
  ASSERT_TRUE(volume->names().Rename(root(), "young", root(), "target", 0).ok());
  EXPECT_GT(syncs, before);
  fake().before_issue = nullptr;
  absl::MutexLock lock(&node.state);
  EXPECT_EQ(node.seen_records().rw_fd, nullptr);
}

TEST_F(BulkTest, RenameAndUnlinkOfABulkFile) {
  Make();
  Handle* const file = OldFile("a");
  const uint64_t end = MakeBulk(file);
  ASSERT_TRUE(volume->names().Rename(root(), "a", root(), "b", 0).ok());
  EXPECT_TRUE(fake().Issued(Op::kOnDisk).empty());  // nothing was lost by it
  Write(file, end, "more");
  ASSERT_TRUE(volume->names().Unlink(root(), "b").ok());
  EXPECT_TRUE(Fsync(file).ok());
  EXPECT_EQ(Read(file, end, 10), "more");
  volume->open_files().Release(file);
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
}

}  // namespace
}  // namespace salius
