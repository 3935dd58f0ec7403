// Reading, writing and syncing open files.
#include <errno.h>
#include <fcntl.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/session/pipeline.h"
#include "tests/unit/volume/volume_fixture.h"

namespace salius {
namespace {

class FilesTest : public VolumeFixture {};

TEST_F(FilesTest, WriteIsReadAtOnceAndOnTheBackingFileAfterClose) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "hello");
  Write(file, 3, "p!");
  EXPECT_EQ(Read(file, 0, 100), "help!");
  EXPECT_EQ(Read(file, 2, 2), "lp");
  EXPECT_EQ(Read(file, 5, 10), "");
  volume->open_files().Release(file);
  Close();
  EXPECT_EQ(BackingContent("a"), "help!");
}

TEST_F(FilesTest, SynchronousWriteOfAMegabyteIsSplitAndWhole) {
  Make();
  Handle* const file = Create("a", O_RDWR | O_SYNC);
  std::string data(kMiB, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7 + i / 4096);
  Write(file, 5, data);
  EXPECT_EQ(Read(file, 5, kMiB + 1), data);
  EXPECT_EQ(Stat(file->node).st_size, static_cast<off_t>(kMiB + 5));
  volume->open_files().Release(file);
}

TEST_F(FilesTest, AppendIgnoresTheOffset) {
  Make();
  Handle* const file = Create("a");
  for (const char* text : {"one", "two", "three"}) {
    ASSERT_EQ(*volume->files().Write(*file, 0, text, /*append=*/true, Contract::kPlain),
              strlen(text));
  }
  EXPECT_EQ(Read(file, 0, 100), "onetwothree");
  volume->open_files().Release(file);
}

TEST_F(FilesTest, WriteBeyondTheEndLeavesZeros) {
  Make();
  Handle* const file = Create("a");
  Write(file, 10000, "x");
  EXPECT_EQ(Read(file, 0, 20000), std::string(10000, '\0') + "x");
  volume->open_files().Release(file);
}

TEST_F(FilesTest, WriteThroughAReadOnlyHandleIsRefused) {
  Make();
  volume->open_files().Release(Create("a"));
  Handle* const file = OpenFile(Find("a"), O_RDONLY);
  EXPECT_EQ(Errno(volume->files().Write(*file, 0, "x", false, Contract::kPlain)), EBADF);
  EXPECT_EQ(Errno(volume->files().Fallocate(*file, 0, 0, 1)), EBADF);
  volume->open_files().Release(file);
}

TEST_F(FilesTest, FsyncWithNothingPendingReturns) {
  Make();
  Handle* const file = Create("a");
  EXPECT_EQ(Errno(Fsync(file)), 0);
  Write(file, 0, "x");
  EXPECT_EQ(Errno(Fsync(file)), 0);
  const Watermarks marks = volume->stream().watermarks();
  EXPECT_EQ(marks.durable, marks.issued);
  volume->open_files().Release(file);
  auto dir = volume->open_files().OpenDir(root());
  ASSERT_TRUE(dir.ok());
  EXPECT_EQ(Errno(Fsync(*dir)), 0);
  volume->open_files().Release(*dir);
}

TEST_F(FilesTest, WriteAfterUnlinkIsReadThroughTheOpenHandle) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "before");
  ASSERT_TRUE(volume->names().Unlink(root(), "a").ok());
  EXPECT_EQ(Stat(file->node).st_nlink, 0u);
  const Seq issued = volume->stream().watermarks().issued;
  Write(file, 6, " after", Contract::kDurable);
  EXPECT_EQ(Read(file, 0, 100), "before after");
  struct stat want {};
  want.st_size = 2;
  want.st_mode = 0600;
  EXPECT_TRUE(volume->attrs().SetAttr(file->node, kSetSize | kSetMode, want).ok());
  EXPECT_EQ(Read(file, 0, 100), "be");
  EXPECT_EQ(Stat(file->node).st_mode & 07777, 0600u);
  EXPECT_EQ(Errno(Fsync(file)), 0);
  // Nothing brings the file back, so none of its changes is logged.
  EXPECT_EQ(volume->stream().watermarks().issued, issued);
  volume->open_files().Release(file);
}

TEST_F(FilesTest, NamelessFileIsLinkedAndSurvivesTheLastClose) {
  Make();
  auto created = volume->names().CreateTmpFile(root(), O_RDWR, 0640, caller);
  ASSERT_TRUE(created.ok()) << created.status();
  Node& node = *created->entry.node;
  EXPECT_EQ(created->entry.attr.st_nlink, 0u);
  EXPECT_EQ(created->entry.attr.st_mode & 07777, 0640u);
  Write(created->handle, 0, "temp");
  auto linked = volume->names().Link(node, root(), "named");
  ASSERT_TRUE(linked.ok()) << linked.status();
  EXPECT_EQ(linked->attr.st_nlink, 1u);
  EXPECT_TRUE(IsThere(".salius/open"));
  volume->open_files().Release(created->handle);
  EXPECT_EQ(Stat(node).st_nlink, 1u);
  Close();
  EXPECT_EQ(BackingContent("named"), "temp");
}

TEST_F(FilesTest, NamelessFileKeepsItsHiddenLinkUntilACheckpointCoversItsRecords) {
  Make();
  auto created = volume->names().CreateTmpFile(root(), O_RDWR, 0640, caller);
  ASSERT_TRUE(created.ok());
  Write(created->handle, 0, "temp");
  volume->open_files().Release(created->handle);
  // If the power failed now, recovery would find records of the file, and must find the file.
  const auto hidden_links = [this] {
    return backing().ListDir(OpenBacking(".salius/open", O_RDONLY).get())->size();
  };
  EXPECT_EQ(hidden_links(), 1u);
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  // The next checkpoint frees the space of closed files that the last one covers.
  ASSERT_TRUE(volume->names().MakeDir(root(), "d", 0755, caller).ok());
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  EXPECT_EQ(Errno(volume->names().Link(*created->entry.node, root(), "late")), ENOENT);
  EXPECT_EQ(hidden_links(), 0u);
}

TEST_F(FilesTest, FallocateExtendsKeepsPunchesAndZeroes) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, std::string(12288, 'a'));
  ASSERT_TRUE(volume->files().Fallocate(*file, 0, 0, 16384).ok());
  EXPECT_EQ(Stat(file->node).st_size, 16384);
  ASSERT_TRUE(volume->files().Fallocate(*file, FALLOC_FL_KEEP_SIZE, 0, 65536).ok());
  EXPECT_EQ(Stat(file->node).st_size, 16384);
  EXPECT_GE(Stat(file->node).st_blocks, 128);
  ASSERT_TRUE(volume->files()
                  .Fallocate(*file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096)
                  .ok());
  ASSERT_TRUE(volume->files().Fallocate(*file, FALLOC_FL_ZERO_RANGE, 16000, 1000).ok());
  EXPECT_EQ(Stat(file->node).st_size, 17000);
  std::string expected = std::string(12288, 'a') + std::string(17000 - 12288, '\0');
  expected.replace(4096, 4096, std::string(4096, '\0'));
  EXPECT_EQ(Read(file, 0, 20000), expected);
  auto data = volume->files().Lseek(*file, 4096, SEEK_DATA);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(*data, 8192u);
  auto hole = volume->files().Lseek(*file, 0, SEEK_HOLE);
  ASSERT_TRUE(hole.ok());
  EXPECT_EQ(*hole, 4096u);
  EXPECT_EQ(Errno(volume->files().Lseek(*file, 20000, SEEK_DATA)), ENXIO);
  EXPECT_EQ(Errno(volume->files().Lseek(*file, 0, SEEK_SET)), EINVAL);
  volume->open_files().Release(file);
}

TEST_F(FilesTest, FallocateRefusesModesThatDoNotConverge) {
  Make();
  Handle* const file = Create("a");
  EXPECT_EQ(Errno(volume->files().Fallocate(*file, FALLOC_FL_COLLAPSE_RANGE, 0, 4096)), EOPNOTSUPP);
  EXPECT_EQ(Errno(volume->files().Fallocate(*file, FALLOC_FL_INSERT_RANGE, 0, 4096)), EOPNOTSUPP);
  EXPECT_EQ(Errno(volume->files().Fallocate(*file, FALLOC_FL_PUNCH_HOLE, 0, 4096)), EOPNOTSUPP);
  EXPECT_EQ(Errno(volume->files().Fallocate(*file, 0, 0, 0)), EINVAL);
  volume->open_files().Release(file);
}

TEST_F(FilesTest, FileTooLargeIsRefusedBeforeItIsStamped) {
  Make();
  Handle* const file = Create("a");
  const uint64_t largest = (uint64_t{1} << 32) * 4096 - 4096;  // ext4 with blocks of 4 KiB
  const BackingFd backing_file = OpenBacking("a", O_RDWR);
  if (backing().SizeFits(backing_file.get(), largest + 1)) {
    volume->open_files().Release(file);
    GTEST_SKIP() << "the file system can hold larger files";
  }
  EXPECT_EQ(Errno(volume->files().Write(*file, largest, "x", false, Contract::kPlain)), EFBIG);
  EXPECT_EQ(Errno(volume->files().Fallocate(*file, 0, uint64_t{1} << 62, 4096)), EFBIG);
  // The part that fits is written.
  auto written = volume->files().Write(*file, largest - 2, "xyz", false, Contract::kPlain);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(*written, 2u);
  struct stat want {};
  want.st_size = static_cast<off_t>(largest) + 1;
  EXPECT_EQ(Errno(volume->attrs().SetAttr(file->node, kSetSize, want)), EFBIG);
  EXPECT_TRUE(volume->stream().health().ok());
  volume->open_files().Release(file);
}

TEST_F(FilesTest, CopyFileRangeCopiesAsDataAndRefusesOverlap) {
  Make();
  Handle* const a = Create("a");
  Handle* const b = Create("b");
  Write(a, 0, "0123456789");
  auto copied = volume->files().CopyFileRange(*a, 2, *b, 1, 5);
  ASSERT_TRUE(copied.ok());
  EXPECT_EQ(*copied, 5u);
  EXPECT_EQ(Read(b, 0, 100), std::string("\0", 1) + "23456");
  copied = volume->files().CopyFileRange(*a, 8, *b, 0, 100);
  ASSERT_TRUE(copied.ok());
  EXPECT_EQ(*copied, 2u);
  EXPECT_EQ(Errno(volume->files().CopyFileRange(*a, 0, *a, 3, 5)), EINVAL);
  EXPECT_EQ(Errno(volume->files().CopyFileRange(*a, 0, *a, 20, 5)), 0);
  volume->open_files().Release(a);
  volume->open_files().Release(b);
}

TEST_F(FilesTest, StatAfterWriteEqualsLaterStat) {
  Make();
  Handle* const file = Create("a");
  Write(file, 0, "x");
  const struct stat first = Stat(file->node);
  ASSERT_TRUE(Fsync(file).ok());
  ASSERT_TRUE(volume->stream().Checkpoint().ok());
  const struct stat later = Stat(file->node);
  EXPECT_EQ(first.st_size, 1);
  EXPECT_EQ(first.st_mtim.tv_sec, later.st_mtim.tv_sec);
  EXPECT_EQ(first.st_mtim.tv_nsec, later.st_mtim.tv_nsec);
  EXPECT_EQ(first.st_ctim.tv_nsec, later.st_ctim.tv_nsec);
  EXPECT_EQ(first.st_blocks, later.st_blocks);
  volume->open_files().Release(file);
}

TEST_F(FilesTest, ConcurrentAppendsAreWholeAndNoneIsLost) {
  Make();
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  constexpr size_t kBytes = 1000;
  Handle* const file = Create("a");
  std::atomic<bool> done{false};
  std::thread reader([&] {
    // Every visible record is whole.
    while (!done) {
      const std::string content = Read(file, 0, kThreads * kRounds * kBytes);
      ASSERT_EQ(content.size() % kBytes, 0u);
      for (size_t at = 0; at < content.size(); at += kBytes) {
        ASSERT_EQ(content.substr(at, kBytes), std::string(kBytes, content[at])) << at;
      }
    }
  });
  std::vector<std::thread> writers;
  for (int i = 0; i < kThreads; ++i) {
    writers.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        const std::string data(kBytes, static_cast<char>('a' + i));
        ASSERT_TRUE(volume->files()
                        .Write(*file, 0, data, /*append=*/true,
                               round % 10 == 0 ? Contract::kDurable : Contract::kPlain)
                        .ok());
        if (round % 50 == 0) {
          ASSERT_TRUE(Fsync(file).ok());
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  done = true;
  reader.join();
  EXPECT_EQ(Stat(file->node).st_size, static_cast<off_t>(kThreads * kRounds * kBytes));
  volume->open_files().Release(file);
}

// A reader does not wait for an apply, and never sees a part of one. The file never becomes bulk,
// because bulk writes are not applied.
TEST_F(FilesTest, ConcurrentOverwritesAreReadWhole) {
  config.bulk_limit_bytes = uint64_t{1} << 40;
  Make();
  constexpr size_t kBytes = 65536;
  Handle* const file = Create("a");
  Write(file, 0, std::string(kBytes, 'a'), Contract::kDurable);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int round = 0; !done; ++round) {
      const std::string data(kBytes, "abcdefgh"[round % 8]);
      ASSERT_TRUE(volume->files().Write(*file, 0, data, false, Contract::kPlain).ok());
      ASSERT_TRUE(volume->stream().WaitApplied(volume->stream().watermarks().issued).ok());
    }
  });
  for (int i = 0; i < 5000; ++i) {
    const std::string content = Read(file, 0, kBytes);
    ASSERT_EQ(content.size(), kBytes);
    EXPECT_EQ(content, std::string(kBytes, content[0])) << i;
    if (HasFailure()) break;
  }
  done = true;
  writer.join();
  volume->open_files().Release(file);
}

TEST_F(FilesTest, OverwriteThatIsAppliedAmidAReadIsReadWhole) {
  config.bulk_limit_bytes = uint64_t{1} << 40;
  Make();
  if (memory == nullptr) GTEST_SKIP() << "a kernel's reads cannot be stopped half-way";
  constexpr size_t kBytes = 65536;
  Handle* const file = Create("a");
  Write(file, 0, std::string(kBytes, 'a'), Contract::kDurable);
  ASSERT_TRUE(volume->stream().WaitApplied(volume->stream().watermarks().issued).ok());
  bool written = false;
  memory->OnEachRead([&] {
    if (std::exchange(written, true)) return;
    Write(file, 0, std::string(kBytes, 'b'));
    ASSERT_TRUE(volume->stream().WaitApplied(volume->stream().watermarks().issued).ok());
  });
  const std::string content = Read(file, 0, kBytes);
  memory->OnEachRead(nullptr);
  EXPECT_TRUE(written);
  ASSERT_EQ(content.size(), kBytes);
  EXPECT_EQ(content, std::string(kBytes, content[0]));
  volume->open_files().Release(file);
}

TEST_F(FilesTest, ChangesOfManyKindsFromManyThreads) {
  config.bulk_limit_bytes = 256 * 1024;
  Make();
  Handle* const file = Create("a");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 60; ++round) {
        const uint64_t at = static_cast<uint64_t>((round * 37 + i * 11) % 64) * 4096;
        Write(file, at, std::string(16384, static_cast<char>('a' + i)),
              round % 7 == 0 ? Contract::kDurable : Contract::kPlain);
        EXPECT_LE(Read(file, at, 16384).size(), 16384u);
        struct stat want {};
        want.st_size = static_cast<off_t>(at);
        want.st_mode = 0600;
        if (round % 13 == 5) {
          EXPECT_EQ(Errno(volume->attrs().SetAttr(file->node, kSetSize, want)), 0);
        }
        if (round % 11 == 3) {
          EXPECT_EQ(Errno(volume->attrs().SetAttr(file->node, kSetMode, want)), 0);
        }
        if (round % 9 == 4) {
          EXPECT_EQ(Errno(Fsync(file)), 0);
        }
        if (round % 17 == 2) {
          EXPECT_EQ(Errno(volume->files().Fallocate(*file, 0, at, 8192)), 0);
        }
        if (round % 19 == 2) {
          EXPECT_EQ(Errno(volume->stream().Checkpoint()), 0);
        }
        Handle* const other = OpenFile(file->node, O_RDONLY);
        volume->open_files().Release(other);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(volume->health().ok());
  const std::string content = Read(file, 0, kMiB);
  volume->open_files().Release(file);
  Close();
  EXPECT_EQ(BackingContent("a"), content);
}

}  // namespace
}  // namespace salius
