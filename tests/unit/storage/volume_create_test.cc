// CreateVolume, VolumeDir::Open and MakeCopyItsOwn in a directory of any backing; failures and
// power cuts in memory.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "storage/apply.h"
#include "storage/direct_id.h"
#include "storage/direct_volume.h"
#include "storage/volume_config.h"
#include "tests/unit/storage/backing_worlds.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius {
namespace {

VolumeConfig SmallConfig() {
  VolumeConfig config = DefaultVolumeConfig();
  config.log_max_bytes = 1 << 20;
  config.stable_log_bytes = 3 << 20;
  config.ballast_bytes = 64 << 10;
  config.replicas = {"10.0.0.1:1", "10.0.0.2:1"};
  config.acks = 2;
  return config;
}

BackingFd OpenDir(Backing& backing, int dirfd, const std::string& name = ".") {
  auto fd = backing.OpenAt(dirfd, name, O_RDONLY | O_DIRECTORY);
  SALIUS_CHECK_OK(fd);
  return std::move(*fd);
}

absl::StatusOr<VolumeDir> OpenVolume(Backing& backing, int root, bool lock = true) {
  return VolumeDir::Open(backing, OpenDir(backing, root), "/volume", lock);
}

// Makes a volume, and lets the lock of its making go.
absl::Status Create(Backing& backing, int root, const VolumeConfig& config) {
  return CreateVolume(backing, OpenDir(backing, root).get(), "/volume", config);
}

class VolumeCreateTest : public BackingTest {
 protected:
  absl::Status Create(const VolumeConfig& config) {
    return salius::Create(backing(), root(), config);
  }
};
SALIUS_IN_EVERY_WORLD(VolumeCreateTest);

TEST_P(VolumeCreateTest, NewVolumeIsCleanAndWhole) {
  const VolumeConfig config = SmallConfig();
  ASSERT_TRUE(Create(config).ok());
  EXPECT_EQ(Errno(backing().StatAt(root(), ".salius.new")), ENOENT);
  EXPECT_EQ(*ReadFileId(backing(), root()), kRootFileId);
  const auto dir = OpenVolume(backing(), root());
  ASSERT_TRUE(dir.ok()) << dir.status();
  EXPECT_EQ(VolumeConfigToToml(dir->config), VolumeConfigToToml(config));
  for (const char* name : {kVolumeFileName, kStateFileName, kStableLogFileName, kLockFileName}) {
    EXPECT_EQ(backing().StatAt(dir->salius_fd, name)->st_mode, S_IFREG | 0600u) << name;
  }
  EXPECT_EQ(backing().StatAt(dir->salius_fd, kBallastFileName)->st_size, 64 << 10);
  const auto state = StateFile::Open(backing(), dir->salius_fd, kStateFileName);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_FALSE(state->state().open);
  EXPECT_EQ(state->state().volume, config.volume);
  const auto log =
      StableLog::Open(backing(), dir->salius_fd, kStableLogFileName, config.volume, nullptr);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->capacity(), 3u << 20);
}

TEST_P(VolumeCreateTest, SecondVolumeInADirectoryIsRefused) {
  ASSERT_TRUE(Create(SmallConfig()).ok());
  EXPECT_EQ(Create(SmallConfig()).code(), absl::StatusCode::kAlreadyExists);
}

TEST_P(VolumeCreateTest, LockIsHeldByOneOnly) {
  ASSERT_TRUE(Create(SmallConfig()).ok());
  auto first = OpenVolume(backing(), root());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(OpenVolume(backing(), root()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(OpenVolume(backing(), root(), /*lock=*/false).ok());
  *first = VolumeDir();
  EXPECT_TRUE(OpenVolume(backing(), root()).ok());
}

TEST_P(VolumeCreateTest, DirectoryThatIsNoVolumeIsNotFound) {
  EXPECT_EQ(OpenVolume(backing(), root()).status().code(), absl::StatusCode::kNotFound);
  SALIUS_CHECK_OK(WriteFileId(backing(), root(), kRootFileId));
  EXPECT_EQ(OpenVolume(backing(), root()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_P(VolumeCreateTest, CopyBecomesAVolumeOfItsOwnAndKeepsLost) {
  ASSERT_TRUE(Create(SmallConfig()).ok());
  MakeFile("f");
  SALIUS_CHECK_OK(WriteFileId(backing(), Open("f").get(), 77));
  VolumeConfig own = SmallConfig();
  {
    const auto dir = OpenVolume(backing(), root());
    ASSERT_TRUE(dir.ok()) << dir.status();
    SALIUS_CHECK_OK(backing().MkdirAt(dir->salius_fd, kLostDirName, 0700));
    const BackingFd lost = OpenDir(backing(), dir->salius_fd, kLostDirName);
    SALIUS_CHECK_OK(backing().MakeNode(lost.get(), "kept", S_IFREG | 0600, 0));
    ASSERT_TRUE(MakeCopyItsOwn(*dir, own).ok());
  }
  EXPECT_EQ(*ReadFileId(backing(), Open("f").get()), kNoFileId);
  const auto dir = OpenVolume(backing(), root());
  ASSERT_TRUE(dir.ok()) << dir.status();
  EXPECT_EQ(dir->config.volume, own.volume);
  const BackingFd lost = OpenDir(backing(), dir->salius_fd, kLostDirName);
  EXPECT_TRUE(backing().StatAt(lost.get(), "kept").ok());
  EXPECT_EQ(Errno(backing().StatAt(root(), ".salius.new")), ENOENT);
}

VolumeConfig DirectConfig() {
  VolumeConfig config = DefaultVolumeConfig(VolumeKind::kDirect);
  config.replicas = {"10.0.0.1:1"};
  return config;
}

TEST_P(VolumeCreateTest, DirectVolumeHasNoLogAndMarksItsRoot) {
  ASSERT_TRUE(Create(DirectConfig()).ok());
  const auto dir = OpenVolume(backing(), root());
  ASSERT_TRUE(dir.ok()) << dir.status();
  EXPECT_EQ(dir->config.kind, VolumeKind::kDirect);
  EXPECT_EQ(*KindOfVolume(backing(), root(), "/volume"), VolumeKind::kDirect);
  const auto names = backing().ListDir(dir->salius_fd);
  ASSERT_TRUE(names.ok());
  EXPECT_THAT(*names,
              testing::UnorderedElementsAre(kVolumeFileName, kStateFileName, kLockFileName));
  EXPECT_EQ(backing().StatAt(root(), kSaliusDir)->st_mode, S_IFDIR | 0700u);
  EXPECT_EQ(*ReadFileId(backing(), root()), kNoFileId);
  EXPECT_EQ(*RootIdOf(backing(), root()), kDirectIdXattr);
  EXPECT_EQ(Errno(backing().XattrValue(root(), "user.salius.probe")), ENODATA);
}

TEST_P(VolumeCreateTest, SecondVolumeIsRefusedWithTheKindOfTheFirst) {
  ASSERT_TRUE(Create(DirectConfig()).ok());
  const absl::Status mount = Create(SmallConfig());
  EXPECT_EQ(mount.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(absl::StrContains(mount.message(), "is a direct volume already")) << mount;
  EXPECT_TRUE(absl::StrContains(mount.message(), "salius-run --direct")) << mount;
}

TEST_P(VolumeCreateTest, DirectVolumeWithoutItsSaliusIsDataLossAndNoNewVolume) {
  ASSERT_TRUE(Create(DirectConfig()).ok());
  SALIUS_CHECK_OK(backing().Rename(root(), kSaliusDir, root(), "moved", 0));
  EXPECT_EQ(OpenVolume(backing(), root()).status().code(), absl::StatusCode::kDataLoss);
  for (const VolumeConfig& config : {DirectConfig(), SmallConfig()}) {
    const absl::Status made = Create(config);
    EXPECT_EQ(made.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(absl::StrContains(made.message(), kDirectIdXattr)) << made;
  }
}

TEST_P(VolumeCreateTest, CopyOfADirectVolumeBecomesOneOfItsOwn) {
  ASSERT_TRUE(Create(DirectConfig()).ok());
  const VolumeConfig own = DirectConfig();
  {
    const auto dir = OpenVolume(backing(), root());
    ASSERT_TRUE(dir.ok()) << dir.status();
    ASSERT_TRUE(MakeCopyItsOwn(*dir, own).ok());
  }
  const auto dir = OpenVolume(backing(), root());
  ASSERT_TRUE(dir.ok()) << dir.status();
  EXPECT_EQ(dir->config.volume, own.volume);
}

// After any failed call there is no volume, or a whole one. The next attempt makes one.
TEST(VolumeCreateFailureTest, AnyFailedCallLeavesNoHalfVolume) {
  using Call = MemoryBacking::Call;
  for (const VolumeConfig& config : {SmallConfig(), DirectConfig()}) {
    for (const Call call : {Call::kMake, Call::kWrite, Call::kSync, Call::kFallocate,
                            Call::kSetXattr, Call::kRename}) {
      for (uint64_t nth = 1;; ++nth) {
        MemoryBacking backing;
        const uint64_t before = backing.calls(call);
        backing.FailNth(call, static_cast<int>(nth), EIO);
        const bool failed = !Create(backing, backing.root(), config).ok();
        if (backing.calls(call) - before < nth) break;
        const bool there = backing.StatAt(backing.root(), kSaliusDir).ok();
        if (failed && !there) SALIUS_CHECK_OK(Create(backing, backing.root(), config));
        EXPECT_TRUE(OpenVolume(backing, backing.root()).ok())
            << "call " << static_cast<int>(call) << ", number " << nth;
      }
    }
  }
}

// A power cut at any sync leaves no volume, or a whole one, and the next attempt makes one.
TEST(VolumeCreateFailureTest, PowerCutLeavesNoHalfVolume) {
  for (uint64_t nth = 1;; ++nth) {
    MemoryBacking backing;
    const uint64_t before = backing.calls(MemoryBacking::Call::kSync);
    backing.FailNth(MemoryBacking::Call::kSync, static_cast<int>(nth), EIO);
    Create(backing, backing.root(), SmallConfig()).IgnoreError();
    if (backing.calls(MemoryBacking::Call::kSync) - before < nth) break;
    backing.PowerCut();
    if (!backing.StatAt(backing.root(), kSaliusDir).ok()) {
      SALIUS_CHECK_OK(Create(backing, backing.root(), SmallConfig()));
    }
    EXPECT_TRUE(OpenVolume(backing, backing.root()).ok()) << nth;
  }
}

TEST(VolumeCreateFailureTest, FullDiskIsResourceExhaustedAndLeavesNothing) {
  MemoryBacking::Options options;
  options.bytes = 2 << 20;
  MemoryBacking backing(options);
  const absl::Status status = Create(backing, backing.root(), SmallConfig());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(backing.ListDir(backing.root())->empty());
  EXPECT_EQ(*ReadFileId(backing, backing.root()), kNoFileId);
}

TEST(LogFilesTest, NoteIsOnTheDiskWhenWriteReturns) {
  MemoryBacking backing;
  SALIUS_CHECK_OK(Create(backing, backing.root(), SmallConfig()));
  {
    const auto dir = OpenVolume(backing, backing.root());
    auto file = StateFile::Open(backing, dir->salius_fd, kStateFileName);
    ASSERT_TRUE(file.ok()) << file.status();
    VolumeState next = file->state();
    next.open = true;
    next.epoch = 5;
    ASSERT_TRUE(file->Write(next).ok());
    next.epoch = 6;
    backing.FailNth(MemoryBacking::Call::kSync, 1, EIO);
    EXPECT_EQ(StatusErrno(file->Write(next)), EIO);
    EXPECT_EQ(file->Write(next).code(), absl::StatusCode::kFailedPrecondition);
    backing.PowerCut();
  }
  const auto dir = OpenVolume(backing, backing.root());
  const auto file = StateFile::Open(backing, dir->salius_fd, kStateFileName);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->state().epoch, 5u);
}

TEST(LogFilesTest, DecisionIsOnTheDiskWhenAppendReturns) {
  MemoryBacking backing;
  const VolumeConfig config = SmallConfig();
  SALIUS_CHECK_OK(Create(backing, backing.root(), config));
  {
    const auto dir = OpenVolume(backing, backing.root());
    auto log = StableLog::Open(backing, dir->salius_fd, kStableLogFileName, config.volume, nullptr);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE(log->AppendDecision({.epoch = 3, .last = 9, .checkpoint = 4}).ok());
    backing.FailNth(MemoryBacking::Call::kSync, 1, EIO);
    EXPECT_EQ(StatusErrno(log->AppendDecision({.epoch = 4, .last = 1})), EIO);
    EXPECT_EQ(log->AppendDecision({.epoch = 4, .last = 1}).code(),
              absl::StatusCode::kFailedPrecondition);
    backing.PowerCut();
  }
  const auto dir = OpenVolume(backing, backing.root());
  StableLog::Contents contents;
  const auto log =
      StableLog::Open(backing, dir->salius_fd, kStableLogFileName, config.volume, &contents);
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_EQ(contents.decisions.size(), 1u);
  EXPECT_EQ(contents.decisions[0].last, 9u);
}

}  // namespace
}  // namespace salius
