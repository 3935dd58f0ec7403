// The tree below a backing directory before it becomes a volume, in memory.
#include "storage/volume_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <string>

#include "common/check.h"
#include "common/file.h"
#include "common/ids.h"
#include "gtest/gtest.h"
#include "storage/apply.h"
#include "storage/volume_config.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius {
namespace {

class VolumeTreeTest : public ::testing::Test {
 protected:
  // Makes a directory, open for reading.
  BackingFd Dir(int dirfd, const std::string& name) {
    SALIUS_CHECK_OK(backing_.MkdirAt(dirfd, name, 0755));
    return Open(dirfd, name, O_RDONLY | O_DIRECTORY);
  }
  void File(int dirfd, const std::string& name) {
    SALIUS_CHECK_OK(backing_.MakeNode(dirfd, name, S_IFREG | 0644, 0));
  }
  BackingFd Open(int dirfd, const std::string& name, int flags = O_PATH | O_NOFOLLOW) {
    auto fd = backing_.OpenAt(dirfd, name, flags);
    SALIUS_CHECK_OK(fd);
    return std::move(*fd);
  }
  FileId IdOf(int dirfd, const std::string& name) {
    auto id = ReadFileId(backing_, Open(dirfd, name).get());
    SALIUS_CHECK_OK(id);
    return *id;
  }
  void SetId(int dirfd, const std::string& name, FileId id) {
    SALIUS_CHECK_OK(WriteFileId(backing_, Open(dirfd, name).get(), id));
  }
  absl::Status Strip() {
    return StripFileIds(backing_, backing_.root(), backing_.Stat(backing_.root())->st_dev);
  }
  absl::Status CheckAlone(int dirfd) { return CheckNoOtherVolume(backing_, dirfd, "/dir"); }

  MemoryBacking backing_;
};

TEST_F(VolumeTreeTest, IdsGoFromFilesLinksAndDirectoriesBelow) {
  const BackingFd d = Dir(backing_.root(), "d"), e = Dir(d.get(), "e");
  File(e.get(), "f");
  SALIUS_CHECK_OK(backing_.Symlink("nowhere", e.get(), "l"));
  SetId(backing_.root(), ".", kRootFileId);
  SetId(backing_.root(), "d", 7);
  SetId(e.get(), "f", 8);
  SetId(e.get(), "l", 9);
  ASSERT_TRUE(Strip().ok());
  EXPECT_EQ(IdOf(backing_.root(), "d"), kNoFileId);
  EXPECT_EQ(IdOf(e.get(), "f"), kNoFileId);
  EXPECT_EQ(IdOf(e.get(), "l"), kNoFileId);
  EXPECT_EQ(IdOf(backing_.root(), "."), kRootFileId) << "the directory itself keeps its own";
}

TEST_F(VolumeTreeTest, AnImmutableFileKeepsItsIdAndIsNamed) {
  File(backing_.root(), "f");
  SetId(backing_.root(), "f", 8);
  backing_.SetMarks(Open(backing_.root(), "f").get(), {.immutable = true});
  const absl::Status stripped = Strip();
  EXPECT_FALSE(stripped.ok());
  EXPECT_NE(stripped.message().find("\"f\" keeps the id"), std::string::npos) << stripped;
}

TEST_F(VolumeTreeTest, UnreadableIdsStopTheInit) {
  File(backing_.root(), "f");
  backing_.FailNth(MemoryBacking::Call::kGetXattr, 1, EIO);
  EXPECT_EQ(StatusErrno(Strip()), EIO);
}

TEST_F(VolumeTreeTest, VolumesAboveAndBelowAreNamed) {
  const BackingFd d = Dir(backing_.root(), "d"), e = Dir(d.get(), "e"), f = Dir(e.get(), "f");
  EXPECT_TRUE(CheckAlone(e.get()).ok());
  // A directory of that name alone is no volume.
  const BackingFd above = Dir(d.get(), kSaliusDir), below = Dir(f.get(), kSaliusDir);
  EXPECT_TRUE(CheckAlone(e.get()).ok());
  File(below.get(), kStateFileName);
  absl::Status checked = CheckAlone(e.get());
  EXPECT_TRUE(absl::IsFailedPrecondition(checked));
  EXPECT_NE(checked.message().find("/dir/f"), std::string::npos) << checked;
  File(above.get(), kVolumeFileName);
  checked = CheckAlone(e.get());
  EXPECT_TRUE(absl::IsFailedPrecondition(checked));
  EXPECT_NE(checked.message().find("/dir/.."), std::string::npos) << checked;
  checked = CheckAlone(f.get());
  EXPECT_NE(checked.message().find("/dir/../.."), std::string::npos) << checked;
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckAlone(backing_.root())));
}

TEST_F(VolumeTreeTest, AFileInThePlaceOfTheDirectoryIsNoVolume) {
  const BackingFd d = Dir(backing_.root(), "d");
  File(d.get(), kSaliusDir);
  EXPECT_TRUE(CheckAlone(backing_.root()).ok());
}

TEST_F(VolumeTreeTest, OwnDirectoryHasNoSetgidBit) {
  SALIUS_CHECK_OK(backing_.Chmod(backing_.root(), 02775));
  const auto own = MakeOwnDir(backing_, backing_.root(), "own");
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(backing_.Stat(own->get())->st_mode & 07777, 0700u);
  EXPECT_EQ(StatusErrno(MakeOwnDir(backing_, backing_.root(), "own").status()), EEXIST);
}

TEST_F(VolumeTreeTest, BallastIsMadeAsLargeAsAsked) {
  const BackingFd own = Dir(backing_.root(), kSaliusDir);
  const auto size = [&] { return backing_.StatAt(own.get(), kBallastFileName)->st_size; };
  for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{3} << 20, uint64_t{2} << 20}) {
    ASSERT_TRUE(RestoreBallast(backing_, own.get(), bytes).ok());
    EXPECT_EQ(size(), static_cast<off_t>(bytes));
    EXPECT_EQ(backing_.StatAt(own.get(), kBallastFileName)->st_blocks,
              static_cast<blkcnt_t>(bytes / 512));
  }
  EXPECT_EQ(StatusErrno(RestoreBallast(backing_, own.get(), uint64_t{1} << 30)), ENOSPC);
  EXPECT_EQ(size(), off_t{2} << 20) << "what cannot be used is not held back";
}

TEST_F(VolumeTreeTest, SyncOfAVolumeReportsAnErrorOfEitherSync) {
  const BackingFd file = backing_.NewFile("lock");
  EXPECT_TRUE(SyncVolume(backing_, backing_.root(), file.get()).ok());
  for (const int nth : {1, 2}) {
    backing_.FailNth(MemoryBacking::Call::kSync, nth, EIO);
    EXPECT_EQ(StatusErrno(SyncVolume(backing_, backing_.root(), file.get())), EIO) << nth;
  }
}

TEST_F(VolumeTreeTest, SyncWithoutRoomNamesTheDiskBelow) {
  const BackingFd file = backing_.NewFile("lock");
  backing_.FailNth(MemoryBacking::Call::kSync, 1, ENOSPC);
  const absl::Status synced = SyncVolume(backing_, backing_.root(), file.get());
  EXPECT_EQ(StatusErrno(synced), ENOSPC);
  EXPECT_THAT(synced.message(), testing::HasSubstr("the disk below the file system is full"));
}

}  // namespace
}  // namespace salius
