// The logic of replay on every backing: in memory without root, and on ext4 and xfs. The cases that
// need a kernel's file system are in replay_test.cc and replay_disk_test.cc.
#include <algorithm>
#include <cerrno>

#include "recovery/replay/replay.h"
#include "storage/apply.h"
#include "tests/unit/recovery/test_util.h"
#include "tests/unit/storage/backing_worlds.h"

namespace salius::recovery {
namespace {

constexpr FileId kRoot = kRootFileId;

class ReplayBackingTest : public BackingTest {
 protected:
  void SetUp() override {
    BackingTest::SetUp();
    if (IsSkipped()) return;
    MakeDir(".salius");
    salius_ = Open(".salius", O_RDONLY | O_DIRECTORY);
    for (const char* const name : {"tmp", "open"}) {
      SALIUS_CHECK_OK(backing().MkdirAt(salius_.get(), name, 0700));
    }
  }

  // Makes a file with an id and data, as a session left it.
  void File(const std::string& name, FileId id, std::string_view data) {
    const BackingFd fd = OpenNew(name);
    SALIUS_CHECK_OK(backing().Pwrite(fd.get(), data, 0));
    SALIUS_CHECK_OK(WriteFileId(backing(), fd.get(), id));
  }
  void Dir(const std::string& name, FileId id) {
    MakeDir(name);
    SALIUS_CHECK_OK(WriteFileId(backing(), Open(name).get(), id));
  }
  FileId IdOf(const std::string& name) { return *ReadFileId(backing(), Open(name).get()); }
  // Returns the names in a directory of the root, in order; of the root without .salius.
  std::vector<std::string> Names(const std::string& dir) {
    std::vector<std::string> names = *backing().ListDir(Open(dir, O_RDONLY | O_DIRECTORY).get());
    std::erase(names, ".salius");
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status Run() {
    const RecordSet set = SetOf(s_.all());
    report_ = RecoveryReport();
    return ReplayRecords(PointersTo(set), &report_,
                         [this](const ReplayPlan& plan) { return Replay(Context(), plan); })
        .status();
  }
  ReplayContext Context() {
    ReplayContext context;
    context.backing = &backing();
    context.root_fd = root();
    context.salius_fd = salius_.get();
    context.step = [this](RecoveryStep) -> absl::Status {
      return ++steps_ == crash_at_ ? absl::AbortedError("crash") : absl::OkStatus();
    };
    context.progress = [](const RecoveryProgress&) {};
    context.report = &report_;
    return context;
  }

  Stamper s_{1};
  BackingFd salius_;
  RecoveryReport report_;
  int steps_ = 0;
  int crash_at_ = 0;  // the step that fails; 0: none
};

using Strings = std::vector<std::string>;

TEST_P(ReplayBackingTest, DataOfAFileWithAnIdIsFoundByScan) {
  File("f", 50, "0123456789");
  s_.Write(50, 2, "ab");
  s_.Write(50, 4, "cd");
  s_.Write(50, 0, "X");
  ASSERT_OK(Run());
  EXPECT_EQ(Content("f"), "X1abcd6789");
  EXPECT_TRUE(report_.tree_scanned);
  EXPECT_EQ(report_.bytes_written, 5u);
}

TEST_P(ReplayBackingTest, AdoptedFileIsFoundByItsHandleAfterItMoved) {
  MakeFile("old");
  s_.Adopt(50, "old", *backing().HandleOf(Open("old").get()));
  s_.Write(50, 0, "DA");
  ASSERT_OK(backing().Rename(root(), "old", root(), "new", 0));
  ASSERT_OK(Run());
  EXPECT_EQ(Content("new"), "DA");
  EXPECT_EQ(IdOf("new"), 50u);
  EXPECT_FALSE(report_.tree_scanned);
}

TEST_P(ReplayBackingTest, LostTreeIsRebuilt) {
  s_.MakeDir(60, kRoot, "d");
  s_.CreateFile(61, 60, "f");
  s_.Write(61, 3, "abc");
  s_.Link(61, kRoot, "l");
  s_.Chmod(61, 0600);
  ASSERT_OK(Run());
  EXPECT_EQ(Names("."), (Strings{"d", "l"}));
  EXPECT_EQ(Names("d"), Strings{"f"});
  EXPECT_EQ(Content("l"), std::string("\0\0\0abc", 6));
  EXPECT_EQ(Stat("l").st_mode & 07777, 0600u);
  EXPECT_EQ(Stat("l").st_nlink, 2u);
  EXPECT_EQ(report_.objects_rebuilt, 2u);
}

TEST_P(ReplayBackingTest, DirectoriesThatChangePlacesKeepTheirContent) {
  Dir("a", 60);
  Dir("b", 61);
  const BackingFd a = Open("a"), b = Open("b");
  ASSERT_OK(backing().MakeNode(a.get(), "of a", S_IFREG | 0644, 0));
  ASSERT_OK(backing().MakeNode(b.get(), "of b", S_IFREG | 0644, 0));
  s_.Rename(60, kRoot, "a", kRoot, "b", 61, RENAME_EXCHANGE);
  ASSERT_OK(Run());
  EXPECT_EQ(IdOf("a"), 61u);
  EXPECT_EQ(Names("a"), Strings{"of b"});
  EXPECT_EQ(Names("b"), Strings{"of a"});
}

TEST_P(ReplayBackingTest, FileWithoutAnIdInTheWayMovesToLost) {
  MakeFile("f");
  s_.CreateFile(60, kRoot, "f");
  s_.Write(60, 0, "ours");
  ASSERT_OK(Run());
  EXPECT_EQ(Content("f"), "ours");
  ASSERT_EQ(report_.lost_and_found.size(), 1u);
  const BackingFd lost =
      std::move(*backing().OpenAt(salius_.get(), "lost", O_RDONLY | O_DIRECTORY));
  EXPECT_EQ(*backing().ListDir(lost.get()), report_.lost_and_found);
}

TEST_P(ReplayBackingTest, MissingFileIsDataLossAndChangesNothing) {
  File("f", 50, "old");
  s_.Write(50, 0, "new");
  s_.Write(51, 0, "of a file that is gone");
  EXPECT_TRUE(absl::IsDataLoss(Run()));
  EXPECT_EQ(Content("f"), "old");
}

TEST_P(ReplayBackingTest, RemovedFileIsNotNeeded) {
  File("f", 50, "old");
  s_.Write(50, 0, "new");
  s_.Unlink(50, kRoot, "f", /*directory=*/false, /*only=*/true);
  ASSERT_OK(Run());
  EXPECT_EQ(Names("."), Strings{});
}

TEST_P(ReplayBackingTest, AttributesAreThoseOfTheEnd) {
  File("f", 50, "");
  ASSERT_OK(backing().SetXattr(Open("f").get(), "user.removed", "x"));
  s_.Stamp(Op::kSetXattr, 50, XattrBody{"user.set", "value"}.Encode());
  s_.Stamp(Op::kRemoveXattr, 50, XattrBody{"user.removed", ""}.Encode());
  ASSERT_OK(Run());
  EXPECT_EQ(*backing().XattrValue(Open("f").get(), "user.set"), "value");
  EXPECT_EQ(Errno(backing().XattrValue(Open("f").get(), "user.removed")), ENODATA);
}

// Cut off after any step and run again, it ends in the same tree.
TEST_P(ReplayBackingTest, CutOffAnywhereItEndsInTheSameTree) {
  Dir("a", 60);
  File("f", 50, "old");
  s_.MakeDir(61, 60, "new");
  s_.Rename(50, kRoot, "f", 61, "moved");
  s_.Write(50, 0, "new");
  s_.CreateFile(62, kRoot, "f");
  s_.Rename(60, kRoot, "a", kRoot, "b");
  for (crash_at_ = 1;; ++crash_at_) {
    steps_ = 0;
    const absl::Status ran = Run();
    if (ran.ok()) break;
    ASSERT_TRUE(absl::IsAborted(ran)) << ran;
  }
  EXPECT_GT(crash_at_, 3);
  EXPECT_EQ(Names("."), (Strings{"b", "f"}));
  EXPECT_EQ(Names("b"), Strings{"new"});
  const BackingFd b = Open("b", O_RDONLY | O_DIRECTORY);
  const BackingFd made = std::move(*backing().OpenAt(b.get(), "new", O_RDONLY | O_DIRECTORY));
  const BackingFd moved = std::move(*backing().OpenAt(made.get(), "moved", O_RDONLY));
  char data[8];
  ASSERT_EQ(*backing().Pread(moved.get(), data, sizeof(data), 0), 3u);
  EXPECT_EQ(std::string(data, 3), "new");
}

// Otherwise each write would wait for its page alone.
TEST_P(ReplayBackingTest, PagesAreFetchedBeforeTheFirstWrite) {
  if (!in_memory()) GTEST_SKIP() << "the pages in memory are the kernel's";
  constexpr uint64_t kPage = Backing::kPageBytes;
  auto& memory = dynamic_cast<MemoryBacking&>(backing());
  const std::string old(6 * kPage, 'o');
  File("f", 50, old);
  s_.Write(50, 4 * kPage + 1, "later");
  s_.Write(50, 1, "first");
  s_.Write(50, 2 * kPage, std::string(kPage, 'w'));
  memory.DropAllPages();
  memory.FailNth(MemoryBacking::Call::kWrite, 1, EIO);
  EXPECT_EQ(Errno(Run()), EIO);
  const BackingFd fd = Open("f", O_RDONLY);
  for (const uint64_t page : {0, 4}) {
    EXPECT_TRUE(memory.ArePagesCached(fd.get(), page * kPage, kPage)) << page;
  }
  for (const uint64_t page : {1, 2, 3, 5}) {
    EXPECT_FALSE(memory.ArePagesCached(fd.get(), page * kPage, kPage)) << page;
  }
}

SALIUS_IN_EVERY_WORLD(ReplayBackingTest);

}  // namespace
}  // namespace salius::recovery
