// CreateVolume and MakeCopyItsOwn on a real directory. Needs root (trusted xattrs, mounts).
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <string>

#include "common/file.h"
#include "common/file_system.h"
#include "common/host.h"
#include "gtest/gtest.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "storage/apply.h"
#include "storage/backing.h"
#include "storage/fs_calls.h"
#include "storage/volume_config.h"
#include "storage/volume_fs.h"
#include "tests/unit/log/fail_writes.h"
#include "tests/unit/log/test_dir.h"
#include "tests/unit/log/volume_dir_testing.h"

namespace salius {
namespace {

using Code = absl::StatusCode;

struct stat Stat(const TestDir& dir, const std::string& name) {
  auto st = fs::StatAt(dir.fd(), name);
  SALIUS_CHECK_OK(st);
  return *st;
}

bool Exists(const TestDir& dir, const std::string& name) { return fs::StatAt(dir.fd(), name).ok(); }

TEST(CreateVolumeTest, MakesEverythingForRootAlone) {
  TestDir dir;
  const VolumeConfig config = SmallConfig();
  ASSERT_TRUE(CreateVolume(dir.path(), config).ok());
  EXPECT_EQ(Stat(dir, ".salius").st_mode & 07777, 0700u);
  for (const char* name : {"volume.toml", "state", "stable.log", "lock", "ballast"}) {
    const struct stat st = Stat(dir, std::string(".salius/") + name);
    EXPECT_TRUE(S_ISREG(st.st_mode)) << name;
    EXPECT_EQ(st.st_mode & 07777, 0600u) << name;
  }
  for (const char* name : {"open", "tmp"}) {
    EXPECT_EQ(Stat(dir, std::string(".salius/") + name).st_mode, S_IFDIR | 0700u) << name;
  }
  EXPECT_GE(Stat(dir, ".salius/ballast").st_blocks * 512, 1 << 20);
  EXPECT_FALSE(Exists(dir, ".salius.new"));
  EXPECT_EQ(*ReadFileId(dir.fd()), kRootFileId);

  auto volume = VolumeDir::Open(dir.path(), true);
  ASSERT_TRUE(volume.ok()) << volume.status();
  EXPECT_EQ(volume->path, dir.path());
  EXPECT_EQ(VolumeConfigToToml(volume->config), VolumeConfigToToml(config));
  auto state = StateFile::Open(LinuxBacking(), volume->salius_fd, kStateFileName);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_FALSE(state->state().open);
  EXPECT_EQ(state->state().epoch, 0u);
  EXPECT_EQ(state->state().volume, config.volume);
  EXPECT_EQ(state->state().acks, 2u);
  EXPECT_EQ(state->state().file_id_limit, 2u);
  EXPECT_EQ(state->state().boot_id, *BootId());
  EXPECT_TRUE(state->state().members.empty());
  auto log = StableLog::Open(LinuxBacking(), volume->salius_fd, kStableLogFileName, config.volume,
                             nullptr);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->capacity(), 3u << 20);
}

TEST(CreateVolumeTest, SecondTimeIsRefusedAndHarmsNothing) {
  TestDir dir;
  const VolumeConfig config = SmallConfig();
  ASSERT_TRUE(CreateVolume(dir.path(), config).ok());
  EXPECT_EQ(CreateVolume(dir.path(), SmallConfig()).code(), Code::kAlreadyExists);
  EXPECT_EQ(VolumeDir::Open(dir.path(), true)->config.volume, config.volume);
}

TEST(CreateVolumeTest, BadConfigIsRefused) {
  TestDir dir;
  VolumeConfig config = SmallConfig();
  config.acks = 3;
  EXPECT_EQ(CreateVolume(dir.path(), config).code(), Code::kInvalidArgument);
  EXPECT_FALSE(Exists(dir, ".salius"));
}

TEST(CreateVolumeTest, MissingOrPlainBackingIsRefused) {
  TestDir dir;
  EXPECT_EQ(CreateVolume(dir.path() + "/none", SmallConfig()).code(), Code::kNotFound);
  dir.Open("file", O_RDWR | O_CREAT);
  EXPECT_EQ(CreateVolume(dir.path() + "/file", SmallConfig()).code(), Code::kInvalidArgument);
}

TEST(CreateVolumeTest, FailureRemovesItsFiles) {
  TestDir dir;
  {
    const FailWrites fail(100 * 1024);  // the stable log is larger
    EXPECT_FALSE(CreateVolume(dir.path(), SmallConfig()).ok());
  }
  EXPECT_TRUE(fs::ListDir(dir.fd())->empty());
  EXPECT_EQ(*ReadFileId(dir.fd()), kNoFileId);
  EXPECT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
}

TEST(CreateVolumeTest, FullDiskIsResourceExhaustedAndLeavesNothing) {
  TestDir dir;
  ASSERT_TRUE(MkdirAt(dir.fd(), "small", 0755).ok());
  const Mount mount("tmpfs", dir.path() + "/small", 0, "size=2m");
  ASSERT_TRUE(mount.ok()) << "needs root";
  EXPECT_EQ(CreateVolume(dir.path() + "/small", SmallConfig()).code(), Code::kResourceExhausted);
  EXPECT_TRUE(fs::ListDir(dir.Open("small", O_RDONLY).get())->empty());
}

TEST(CreateVolumeTest, RemainsOfACrashedInitAreReplaced) {
  TestDir dir;
  ASSERT_TRUE(MkdirAt(dir.fd(), ".salius.new", 0700).ok());
  ASSERT_TRUE(MkdirAt(dir.fd(), ".salius.new/open", 0700).ok());
  dir.Open(".salius.new/open/x", O_RDWR | O_CREAT);
  ASSERT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  EXPECT_FALSE(Exists(dir, ".salius.new"));
}

// A user may have made a `.salius.new`, also in a volume that has lost its `.salius` since.
TEST(CreateVolumeTest, FilesOfOthersAreNotRemoved) {
  TestDir dir;
  ASSERT_TRUE(MkdirAt(dir.fd(), ".salius.new", 0700).ok());
  dir.Open(".salius.new/mine", O_RDWR | O_CREAT);
  ASSERT_TRUE(WriteFileId(dir.fd(), kRootFileId).ok());
  const absl::Status refused = CreateVolume(dir.path(), SmallConfig());
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition) << refused;
  EXPECT_TRUE(Exists(dir, ".salius.new/mine"));
  EXPECT_EQ(*ReadFileId(dir.fd()), kRootFileId);
}

TEST(CreateVolumeTest, IdsOfAnEarlierVolumeAreRemoved) {
  TestDir dir;
  ASSERT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  ASSERT_TRUE(MkdirAt(dir.fd(), "d", 0755).ok());
  const UniqueFd file = dir.Open("d/f", O_RDWR | O_CREAT);
  ASSERT_TRUE(fs::Symlink("f", dir.fd(), "d/l").ok());
  ASSERT_TRUE(WriteFileId(file.get(), 77).ok());
  ASSERT_TRUE(WriteFileId(dir.Open("d", O_RDONLY).get(), 78).ok());
  ASSERT_TRUE(fs::RemoveTree(dir.fd(), ".salius").ok());
  // Files of a volume were copied there, without their root.
  ASSERT_TRUE(fs::RemoveXattr(dir.fd(), kFileIdXattr).ok());
  ASSERT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  EXPECT_EQ(*ReadFileId(file.get()), kNoFileId);
  EXPECT_EQ(*ReadFileIdAt(dir.fd(), "d"), kNoFileId);
  EXPECT_EQ(*ReadFileId(dir.fd()), kRootFileId);
}

// A volume in `dir`/v, with a file and a directory that have ids.
struct Neighbour {
  explicit Neighbour(const TestDir& dir) {
    SALIUS_CHECK_OK(MkdirAt(dir.fd(), "v", 0755));
    SALIUS_CHECK_OK(MkdirAt(dir.fd(), "v/d", 0755));
    SALIUS_CHECK_OK(MkdirAt(dir.fd(), "v/d/e", 0755));
    SALIUS_CHECK_OK(CreateVolume(dir.path() + "/v", SmallConfig()));
    file = dir.Open("v/d/e/f", O_RDWR | O_CREAT);
    SALIUS_CHECK_OK(WriteFileId(file.get(), 77));
    SALIUS_CHECK_OK(WriteFileId(dir.Open("v/d", O_RDONLY).get(), 78));
  }
  void ExpectWhole(const TestDir& dir) const {
    EXPECT_EQ(*ReadFileId(file.get()), 77u);
    EXPECT_EQ(*ReadFileIdAt(dir.fd(), "v/d"), 78u);
    EXPECT_EQ(*ReadFileIdAt(dir.fd(), "v"), kRootFileId);
    EXPECT_TRUE(VolumeDir::Open(dir.path() + "/v", true).ok());
  }
  UniqueFd file;
};

TEST(CreateVolumeTest, ADirectoryWithAVolumeInItIsRefusedAndNoIdIsTaken) {
  TestDir dir;
  ASSERT_TRUE(MkdirAt(dir.fd(), "a", 0755).ok());
  const UniqueFd own = dir.Open("a/f", O_RDWR | O_CREAT);
  ASSERT_TRUE(WriteFileId(own.get(), 5).ok());
  const Neighbour volume(dir);
  for (const bool damaged : {false, true}) {
    if (damaged) SALIUS_CHECK_OK(fs::Unlink(dir.fd(), "v/.salius/volume.toml", 0));
    const absl::Status refused = CreateVolume(dir.path(), SmallConfig());
    EXPECT_EQ(refused.code(), Code::kFailedPrecondition) << refused;
    EXPECT_NE(refused.message().find(dir.path() + "/v"), absl::string_view::npos) << refused;
    if (!damaged) volume.ExpectWhole(dir);
    EXPECT_EQ(*ReadFileId(volume.file.get()), 77u);
    EXPECT_EQ(*ReadFileId(own.get()), 5u);
    EXPECT_FALSE(Exists(dir, ".salius.new"));
    EXPECT_EQ(*ReadFileId(dir.fd()), kNoFileId);
  }
}

TEST(CreateVolumeTest, ADirectoryOfAVolumeIsRefusedAndNoIdIsTaken) {
  TestDir dir;
  const Neighbour volume(dir);
  for (const char* inner : {"/v/d", "/v/d/e", "/v/.salius/tmp"}) {
    const absl::Status refused = CreateVolume(dir.path() + inner, SmallConfig());
    EXPECT_EQ(refused.code(), Code::kFailedPrecondition) << refused;
    EXPECT_NE(refused.message().find("lies in a volume"), absl::string_view::npos) << refused;
    EXPECT_FALSE(Exists(dir, std::string(inner + 1) + "/.salius.new"));
  }
  volume.ExpectWhole(dir);
}

TEST(CreateVolumeTest, AVolumeBesideOrOnAnotherFileSystemDoesNotMatter) {
  TestDir dir;
  const Neighbour volume(dir);
  ASSERT_TRUE(MkdirAt(dir.fd(), "beside", 0755).ok());
  EXPECT_TRUE(CreateVolume(dir.path() + "/beside", SmallConfig()).ok());
  const Mount mount("tmpfs", dir.path() + "/v/d/e", 0, "size=8m");
  ASSERT_TRUE(mount.ok()) << "needs root";
  EXPECT_TRUE(CreateVolume(dir.path() + "/v/d/e", SmallConfig()).ok());
  volume.ExpectWhole(dir);
}

TEST(CreateVolumeTest, AVolumeThatLostItsSaliusDirectoryIsRefusedAndKeepsItsIds) {  // R5
  TestDir dir;
  ASSERT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  const UniqueFd file = dir.Open("f", O_RDWR | O_CREAT);
  ASSERT_TRUE(WriteFileId(file.get(), 77).ok());
  ASSERT_TRUE(fs::RemoveTree(dir.fd(), ".salius").ok());
  const absl::Status refused = CreateVolume(dir.path(), SmallConfig());
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition) << refused;
  EXPECT_NE(refused.message().find("setfattr -x trusted.salius.id " + dir.path()),
            absl::string_view::npos)
      << refused;
  EXPECT_EQ(*ReadFileId(file.get()), 77u);
  EXPECT_EQ(*ReadFileId(dir.fd()), kRootFileId);
  // An init that is cut off before its last rename leaves such a root too.
  ASSERT_TRUE(MkdirAt(dir.fd(), ".salius.new", 0700).ok());
  EXPECT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  EXPECT_EQ(*ReadFileId(file.get()), kNoFileId);
}

TEST(CreateVolumeTest, ImmutableFilesMatterOnlyWithAnId) {
  TestDir dir;
  const UniqueFd file = dir.Open("f", O_RDWR | O_CREAT);
  const auto immutable = [&](int flag) {
    ASSERT_EQ(ioctl(file.get(), FS_IOC_SETFLAGS, &flag), 0) << strerror(errno);
  };
  ASSERT_TRUE(WriteFileId(file.get(), 77).ok());
  immutable(FS_IMMUTABLE_FL);
  const absl::Status refused = CreateVolume(dir.path(), SmallConfig());
  EXPECT_NE(refused.message().find("\"f\" keeps the id"), std::string::npos) << refused;
  EXPECT_FALSE(fs::StatAt(dir.fd(), ".salius").ok());
  immutable(0);
  ASSERT_TRUE(fs::RemoveXattr(file.get(), kFileIdXattr).ok());
  immutable(FS_IMMUTABLE_FL);
  EXPECT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  immutable(0);
}

TEST(CreateVolumeTest, DefaultAclAndSetgidOfTheBackingAreNotInherited) {
  TestDir dir;
  // user::rwx user:1000:rwx group::r-x mask::rwx other::r-x, as the kernel stores it.
  const unsigned char acl[] = {2,    0, 0, 0,                          //
                               1,    0, 7, 0, 0xff, 0xff, 0xff, 0xff,  //
                               2,    0, 7, 0, 0xe8, 3,    0,    0,     //
                               4,    0, 5, 0, 0xff, 0xff, 0xff, 0xff,  //
                               0x10, 0, 7, 0, 0xff, 0xff, 0xff, 0xff,  //
                               0x20, 0, 5, 0, 0xff, 0xff, 0xff, 0xff};
  ASSERT_EQ(setxattr(dir.path().c_str(), "system.posix_acl_default", acl, sizeof(acl), 0), 0)
      << "the test directory's file system has no ACLs";
  ASSERT_TRUE(fs::Chmod(dir.fd(), 02755).ok());
  ASSERT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  for (const char* name : {".salius", ".salius/tmp", ".salius/open"}) {
    const UniqueFd fd = dir.Open(name, O_RDONLY);
    bool found = false;
    ASSERT_TRUE(fs::GetXattr(fd.get(), "system.posix_acl_default", &found).ok());
    EXPECT_FALSE(found) << name;
    EXPECT_EQ(Stat(dir, name).st_mode & 07777, 0700u) << name;
  }
}

// Makes the copy of a volume with a file that has an id, and an object that a recovery set aside.
VolumeDir MakeCopy(const TestDir& dir, const VolumeConfig& config) {
  SALIUS_CHECK_OK(CreateVolume(dir.path(), config));
  SALIUS_CHECK_OK(WriteFileId(dir.Open("f", O_RDWR | O_CREAT).get(), 77));
  SALIUS_CHECK_OK(MkdirAt(dir.fd(), ".salius/lost", 0700));
  dir.Open(".salius/lost/found", O_RDWR | O_CREAT);
  dir.Open(".salius/recovery", O_RDWR | O_CREAT);
  absl::StatusOr<VolumeDir> opened = VolumeDir::Open(dir.path(), /*lock=*/true);
  SALIUS_CHECK_OK(opened);
  return *std::move(opened);
}

TEST(MakeCopyItsOwnTest, FilesStayAndTheOldVolumesFilesAreSetAside) {
  TestDir dir;
  VolumeConfig config = SmallConfig();
  {
    const VolumeDir copy = MakeCopy(dir, config);
    config.volume = VolumeId::Random();
    const absl::Status made = MakeCopyItsOwn(copy, config);
    ASSERT_TRUE(made.ok()) << made;
  }
  const auto opened = VolumeDir::Open(dir.path(), /*lock=*/true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->config.volume, config.volume);
  const auto state = StateFile::Open(LinuxBacking(), opened->salius_fd, kStateFileName);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->state().volume, config.volume);
  EXPECT_FALSE(state->state().open);
  EXPECT_EQ(*ReadFileId(dir.Open("f", O_RDONLY).get()), kNoFileId);
  EXPECT_EQ(*ReadFileId(dir.fd()), kRootFileId);
  EXPECT_TRUE(Exists(dir, ".salius/lost/found"));
  EXPECT_FALSE(Exists(dir, ".salius/recovery"));
  EXPECT_FALSE(Exists(dir, ".salius.new"));
}

TEST(MakeCopyItsOwnTest, FailureLeavesTheCopyUnchanged) {
  TestDir dir;
  VolumeConfig config = SmallConfig();
  const VolumeDir copy = MakeCopy(dir, config);
  const VolumeId old = config.volume;
  config.volume = VolumeId::Random();
  config.ballast_bytes = uint64_t{1} << 40;
  EXPECT_FALSE(MakeCopyItsOwn(copy, config).ok());
  EXPECT_FALSE(Exists(dir, ".salius.new"));
  EXPECT_TRUE(Exists(dir, ".salius/lost/found"));
  const auto opened = VolumeDir::Open(dir.path(), /*lock=*/false);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->config.volume, old);
  // Objects that a user put there are not removed either.
  config.ballast_bytes = 0;
  ASSERT_TRUE(MkdirAt(dir.fd(), ".salius.new", 0700).ok());
  dir.Open(".salius.new/mine", O_RDWR | O_CREAT);
  EXPECT_EQ(MakeCopyItsOwn(copy, config).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Exists(dir, ".salius.new/mine"));
}

}  // namespace
}  // namespace salius
