// The arena's file: made, attached to, refused.
#include "replica/arena_file.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/replica/replica_client.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

class ArenaFileTest : public ::testing::Test {
 protected:
  ArenaFile::Options Options(uint64_t mib = 4) {
    ArenaFile::Options options;
    options.dir = shm_.path() + "/replica";
    options.memory_bytes = mib << 20;
    options.lock_memory = false;
    return options;
  }
  absl::StatusOr<std::unique_ptr<ArenaFile>> Open(uint64_t mib = 4) {
    return ArenaFile::Open(Options(mib), SecureRandom64);
  }
  ShmDir shm_;
};

TEST_F(ArenaFileTest, IsMadeOnceAndAttachedToAfterwards) {
  Incarnation incarnation = 0;
  {
    const auto file = Open().value();
    EXPECT_EQ(file->created_because(), "there was none");
    EXPECT_TRUE(file->on_tmpfs());
    incarnation = file->arena().incarnation();
  }
  struct stat st;
  ASSERT_EQ(stat((shm_.path() + "/replica/arena").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_GE(st.st_blocks * 512, 4 << 20);  // all of it is reserved
  const auto file = Open().value();
  EXPECT_EQ(file->created_because(), "");
  EXPECT_EQ(file->arena().incarnation(), incarnation);
  EXPECT_EQ(file->arena().process_starts(), 2u);
}

TEST_F(ArenaFileTest, OtherSizeIsANewIncarnation) {
  const Incarnation before = Open()->get()->arena().incarnation();
  const auto file = Open(8).value();
  EXPECT_THAT(file->created_because(), HasSubstr("4194304"));
  EXPECT_NE(file->arena().incarnation(), before);
  EXPECT_EQ(file->arena().geometry().total_bytes, uint64_t{8} << 20);
}

TEST_F(ArenaFileTest, OtherVersionOrDamagedHeaderIsANewIncarnation) {
  for (const int at : {8, 20}) {
    const Incarnation before = Open()->get()->arena().incarnation();
    UniqueFd fd(open((shm_.path() + "/replica/arena").c_str(), O_RDWR | O_CLOEXEC));
    const uint8_t byte = 9;
    ASSERT_EQ(pwrite(fd.get(), &byte, 1, at), 1);
    const auto file = Open().value();
    EXPECT_NE(file->created_because(), "");
    EXPECT_NE(file->arena().incarnation(), before);
  }
}

TEST_F(ArenaFileTest, RemovedDirectoryIsANewIncarnation) {
  const Incarnation before = Open()->get()->arena().incarnation();
  std::filesystem::remove_all(shm_.path() + "/replica");
  EXPECT_NE(Open()->get()->arena().incarnation(), before);
}

TEST_F(ArenaFileTest, IsHeldByOneAtATime) {
  const auto first = Open().value();
  const auto second = Open();
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("/replica/arena"));
}

TEST_F(ArenaFileTest, MissingParentDirectoryIsAnError) {
  ArenaFile::Options options = Options();
  options.dir = shm_.path() + "/no/replica";
  EXPECT_EQ(ArenaFile::Open(options, SecureRandom64).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ArenaFileTest, SymbolicLinkIsRefused) {
  std::filesystem::create_directory(shm_.path() + "/elsewhere");
  std::filesystem::create_symlink("elsewhere", shm_.path() + "/replica");
  EXPECT_FALSE(Open().ok());
  EXPECT_TRUE(std::filesystem::is_empty(shm_.path() + "/elsewhere"));
}

TEST_F(ArenaFileTest, SizeBeyondTheTmpfsIsRefusedAndTheOldArenaIsKept) {
  const Incarnation before = Open()->get()->arena().incarnation();
  const auto huge = Open(uint64_t{4} << 20);  // 4 TiB
  EXPECT_EQ(huge.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(huge.status().message()), HasSubstr("--memory"));
  EXPECT_EQ(Open()->get()->arena().incarnation(), before);
}

TEST_F(ArenaFileTest, TooSmallASizeIsInvalid) {
  EXPECT_EQ(Open(1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(shm_.path() + "/replica"));
}

TEST_F(ArenaFileTest, DirectoryOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a directory away";
  std::filesystem::create_directory(shm_.path() + "/replica");
  ASSERT_EQ(chown((shm_.path() + "/replica").c_str(), 65534, 65534), 0);
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kFailedPrecondition);
}

// On a disk the memory may have a state from long before the host died.
TEST_F(ArenaFileTest, DirectoryThatOthersMayWriteToIsRefused) {
  const std::string dir = shm_.path() + "/replica";
  ASSERT_TRUE(Open().ok());
  for (const mode_t mode : {0777, 0770, 0702}) {
    ASSERT_EQ(chmod(dir.c_str(), mode), 0);
    const auto refused = Open();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.status())) << refused.status();
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("others may write to " + dir));
  }
  ASSERT_EQ(chmod(dir.c_str(), 0755), 0);
  EXPECT_TRUE(Open().ok());
}

TEST_F(ArenaFileTest, ArenaThatOthersMayWriteToOrHaveANameOfIsRefused) {
  const std::string arena = shm_.path() + "/replica/arena";
  ASSERT_TRUE(Open().ok());
  ASSERT_EQ(chmod(arena.c_str(), 0666), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(Open().status()));
  ASSERT_EQ(chmod(arena.c_str(), 0600), 0);
  ASSERT_EQ(link(arena.c_str(), (shm_.path() + "/other").c_str()), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(Open().status()));
  ASSERT_EQ(unlink((shm_.path() + "/other").c_str()), 0);
  EXPECT_TRUE(Open().ok());
  ASSERT_EQ(unlink(arena.c_str()), 0);
  ASSERT_EQ(mkfifo(arena.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(Open().status()));
}

TEST_F(ArenaFileTest, DirectoryWithAnotherPurposeIsRefused) {
  ArenaFile::Options options = Options();
  options.dir = "/etc";
  const auto etc = ArenaFile::Open(options, SecureRandom64);
  EXPECT_TRUE(absl::IsFailedPrecondition(etc.status())) << etc.status();
  EXPECT_THAT(std::string(etc.status().message()), HasSubstr("a directory of its own"));
  EXPECT_FALSE(std::filesystem::exists("/etc/arena"));
  std::filesystem::create_directory(shm_.path() + "/replica");
  EXPECT_TRUE(Open().ok()) << "an empty one is its own";
}

TEST_F(ArenaFileTest, NameTakenByAnotherUserIsAvoidedAndFoundAgain) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a directory away";
  ArenaFile::Options options = Options();
  options.take_neighbour = true;
  ASSERT_EQ(mkdir(options.dir.c_str(), 0700), 0);
  ASSERT_EQ(chown(options.dir.c_str(), 65534, 65534), 0);
  // Another user has guessed this name.
  ASSERT_EQ(mkdir((options.dir + ".0").c_str(), 0777), 0);
  ASSERT_EQ(chown((options.dir + ".0").c_str(), 65534, 65534), 0);
  std::string path;
  Incarnation incarnation = 0;
  {
    const auto file = ArenaFile::Open(options, SecureRandom64).value();
    path = file->path();
    incarnation = file->arena().incarnation();
  }
  EXPECT_EQ(path.rfind(options.dir + ".", 0), 0u) << path;
  const auto again = ArenaFile::Open(options, SecureRandom64).value();
  EXPECT_EQ(again->path(), path);
  EXPECT_EQ(again->arena().incarnation(), incarnation);
}

TEST_F(ArenaFileTest, MemoryOfRootIsNotLeftBehind) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  ArenaFile::Options options = Options();
  ASSERT_TRUE(ArenaFile::Open(options, SecureRandom64).ok());
  ASSERT_EQ(chmod(shm_.path().c_str(), 0777), 0);
  for (const bool take_neighbour : {false, true}) {
    options.take_neighbour = take_neighbour;
    ASSERT_EQ(seteuid(65534), 0);
    const auto other = ArenaFile::Open(options, SecureRandom64);
    ASSERT_EQ(seteuid(0), 0);
    EXPECT_TRUE(absl::IsFailedPrecondition(other.status())) << other.status();
    EXPECT_THAT(std::string(other.status().message()), HasSubstr("`chown -R 65534 "));
  }
  ASSERT_EQ(std::system(absl::StrCat("chown -R 65534 ", options.dir).c_str()), 0);
  ASSERT_EQ(seteuid(65534), 0);
  const auto handed_over = ArenaFile::Open(options, SecureRandom64);
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_TRUE(handed_over.ok()) << handed_over.status();
  EXPECT_EQ((*handed_over)->path(), options.dir + "/arena");
}

TEST(ArenaFileOnDiskTest, AnotherBootIsANewIncarnation) {
  const std::string dir = testing::TempDir() + "arena-on-disk";
  ArenaFile::Options options{.dir = dir, .memory_bytes = 4 << 20, .lock_memory = false};
  const auto incarnation = [&](bool went_back) {
    const auto file = ArenaFile::Open(options, SecureRandom64).value();
    EXPECT_FALSE(file->on_tmpfs()) << "the test needs a directory on a disk";
    EXPECT_EQ(file->went_back(), went_back);
    return file->arena().incarnation();
  };
  const Incarnation first = incarnation(false);
  EXPECT_EQ(incarnation(false), first);  // only the process was started again
  const UniqueFd at = OpenAt(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY).value();
  ASSERT_TRUE(WriteFileAtomically(at.get(), "boot", AsBytes("another boot"), 0600).ok());
  const Incarnation second = incarnation(true);
  EXPECT_NE(second, first);
  EXPECT_EQ(incarnation(false), second);
}

// Runs in a child without the privilege to lock memory and with a limit of 64 KiB.
TEST_F(ArenaFileTest, LimitOfLockedMemoryIsNamed) {
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
  GTEST_SKIP() << "the sanitizers make mlock(2) do nothing";
#endif
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{65536, 65536};
    setrlimit(RLIMIT_MEMLOCK, &limit);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    syscall(SYS_capset, &header, data);
    ArenaFile::Options options = Options();
    options.lock_memory = true;
    const absl::Status status = ArenaFile::Open(options, SecureRandom64).status();
    const std::string text(status.message().data(), status.message().size());
    const bool said = status.code() == absl::StatusCode::kResourceExhausted &&
                      text.find("--no-mlock") != std::string::npos &&
                      text.find("RLIMIT_MEMLOCK") != std::string::npos;
    _exit(said ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace salius
