// VolumeDir on a real directory. Needs root (trusted xattrs, mounts).
#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/file.h"
#include "common/file_system.h"
#include "gtest/gtest.h"
#include "storage/fs_calls.h"
#include "storage/volume_config.h"
#include "storage/volume_fs.h"
#include "tests/unit/log/test_dir.h"
#include "tests/unit/log/volume_dir_testing.h"

namespace salius {
namespace {

using Code = absl::StatusCode;

TEST(VolumeDirTest, NoDirectoryOrNoVolumeIsNotFound) {
  TestDir dir;
  EXPECT_EQ(VolumeDir::Open(dir.path() + "/none", true).status().code(), Code::kNotFound);
  const absl::Status status = VolumeDir::Open(dir.path(), true).status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("salius init"), absl::string_view::npos) << status;
}

TEST(VolumeDirTest, AVolumeThatLostItsSaliusDirectoryIsNoPlainDirectory) {  // R5
  TestDir dir;
  ASSERT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  ASSERT_TRUE(fs::RemoveTree(dir.fd(), ".salius").ok());
  const absl::Status status = VolumeDir::Open(dir.path(), true).status();
  EXPECT_EQ(status.code(), Code::kDataLoss) << status;
  EXPECT_NE(status.message().find("do not run `salius init`"), absl::string_view::npos) << status;
}

TEST(VolumeDirTest, LockNamesItsHolderAndReadersNeedNone) {
  TestDir dir;
  ASSERT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  {
    auto holder = VolumeDir::Open(dir.path(), true);
    ASSERT_TRUE(holder.ok()) << holder.status();
    const absl::Status status = VolumeDir::Open(dir.path(), true).status();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find(absl::StrFormat("process %d", getpid())),
              absl::string_view::npos)
        << status;
    auto reader = VolumeDir::Open(dir.path(), false);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->lock_fd, -1);
  }
  EXPECT_TRUE(VolumeDir::Open(dir.path(), true).ok()) << "freed with its holder";
}

TEST(VolumeDirTest, LockOfAnotherProcessEndsWithThatProcess) {
  TestDir dir;
  ASSERT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto held = VolumeDir::Open(dir.path(), true);
    const char answer = held.ok() ? 'y' : 'n';
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  const absl::Status status = VolumeDir::Open(dir.path(), true).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find(absl::StrFormat("process %d", child)), absl::string_view::npos);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(VolumeDir::Open(dir.path(), true).ok());
  close(ready[0]);
  close(ready[1]);
}

TEST(VolumeDirTest, MovingKeepsTheLock) {
  TestDir dir;
  ASSERT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  auto opened = VolumeDir::Open(dir.path(), true);
  ASSERT_TRUE(opened.ok());
  VolumeDir moved = std::move(*opened);
  EXPECT_EQ(opened->lock_fd, -1);
  EXPECT_EQ(VolumeDir::Open(dir.path(), true).status().code(), Code::kUnavailable);
  moved = VolumeDir();
  EXPECT_TRUE(VolumeDir::Open(dir.path(), true).ok());
}

TEST(VolumeDirTest, LostFilesAreDataLossNotANewVolume) {  // R6
  TestDir dir;
  ASSERT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  ASSERT_TRUE(fs::Unlink(dir.fd(), ".salius/volume.toml", 0).ok());
  EXPECT_EQ(VolumeDir::Open(dir.path(), true).status().code(), Code::kDataLoss);
  ASSERT_TRUE(fs::Unlink(dir.fd(), ".salius/lock", 0).ok());
  EXPECT_EQ(VolumeDir::Open(dir.path(), true).status().code(), Code::kDataLoss);
}

TEST(VolumeDirTest, BadVolumeTomlIsInvalidArgumentAndFreesTheLock) {
  TestDir dir;
  ASSERT_TRUE(CreateVolume(dir.path(), SmallConfig()).ok());
  const UniqueFd toml = dir.Open(".salius/volume.toml", O_RDWR | O_TRUNC);
  ASSERT_TRUE(PwriteFull(toml.get(), AsBytes(std::string_view("nonsense = 1\n")), 0).ok());
  EXPECT_EQ(VolumeDir::Open(dir.path(), true).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(VolumeDir::Open(dir.path(), true).status().code(), Code::kInvalidArgument);
}

TEST(VolumeDirTest, ReadOnlyFileSystemIsRefused) {
  TestDir dir;
  ASSERT_TRUE(MkdirAt(dir.fd(), "ro", 0755).ok());
  const Mount mount("tmpfs", dir.path() + "/ro", MS_RDONLY, "");
  ASSERT_TRUE(mount.ok()) << "needs root";
  const absl::Status status = VolumeDir::Open(dir.path() + "/ro", true).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_NE(status.message().find("read-only"), absl::string_view::npos) << status;
  EXPECT_EQ(CreateVolume(dir.path() + "/ro", SmallConfig()).code(), Code::kFailedPrecondition);
}

// A FUSE file system with an empty root, served by a thread.
class EmptyFuse {
 public:
  explicit EmptyFuse(const std::string& where) : where_(where) {
    static const fuse_lowlevel_ops ops = [] {
      fuse_lowlevel_ops o{};
      o.getattr = [](fuse_req_t req, fuse_ino_t, fuse_file_info*) {
        struct stat st {};
        st.st_ino = 1;
        st.st_mode = S_IFDIR | 0755;
        st.st_nlink = 2;
        fuse_reply_attr(req, &st, 1.0);
      };
      return o;
    }();
    char name[] = "empty";
    char* argv[] = {name, nullptr};
    fuse_args args = FUSE_ARGS_INIT(1, argv);
    session_ = fuse_session_new(&args, &ops, sizeof(ops), nullptr);
    fuse_opt_free_args(&args);
    ok_ = session_ != nullptr && fuse_session_mount(session_, where.c_str()) == 0;
    if (ok_) thread_ = std::thread([this] { fuse_session_loop(session_); });
  }
  ~EmptyFuse() {
    if (session_ == nullptr) return;
    // Ends the loop with ENODEV; only then may the session close its descriptor.
    if (ok_) SALIUS_CHECK(umount2(where_.c_str(), MNT_DETACH) == 0);
    if (thread_.joinable()) thread_.join();
    if (ok_) fuse_session_unmount(session_);
    fuse_session_destroy(session_);
  }
  bool ok() const { return ok_; }

 private:
  const std::string where_;
  fuse_session* session_ = nullptr;
  bool ok_ = false;
  std::thread thread_;
};

TEST(VolumeDirTest, FuseIsRefused) {
  TestDir dir;
  ASSERT_TRUE(MkdirAt(dir.fd(), "mnt", 0755).ok());
  const EmptyFuse fuse(dir.path() + "/mnt");
  ASSERT_TRUE(fuse.ok()) << "needs root and /dev/fuse";
  const absl::Status status = VolumeDir::Open(dir.path() + "/mnt", true).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
  EXPECT_NE(status.message().find("FUSE"), absl::string_view::npos) << status;
  EXPECT_EQ(CreateVolume(dir.path() + "/mnt", SmallConfig()).code(), Code::kFailedPrecondition);
}

TEST(BackingFileSystemTest, NetworkFileSystemsAndOverlaysAreRefusedByType) {
  for (const int64_t type : {0x794C7630, 0x6969, 0x01021997, 0x00C36400, 0x5346414F}) {
    const absl::Status status = CheckBackingKind({type, false}, "/b");
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << type;
  }
  EXPECT_EQ(CheckBackingKind({0xFF534D42, false}, "/b").code(), Code::kFailedPrecondition);
  EXPECT_TRUE(CheckBackingKind({0xEF53, false}, "/b").ok());  // ext4
  EXPECT_EQ(CheckBackingKind({0xEF53, true}, "/b").code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace salius
