// Early return of syncs on files of a mount, without a call to its daemon. The daemon's end of the gate
// is in this process; the test needs root, since it reads /proc of other processes.
#include "client/preload/mounted_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/gate/insiders.h"
#include "client/gate/memory.h"
#include "client/gate/mount_gates.h"
#include "client/gate/server.h"
#include "common/check.h"
#include "common/file.h"
#include "common/log.h"

namespace salius::preload {
namespace {

class MountedFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    SALIUS_CHECK_OK(InitLogging("mounted_files_test", "error"));
    directory_ = absl::StrCat(testing::TempDir(), "/files.", ::getpid());
    ASSERT_EQ(::mkdir(directory_.c_str(), 0700), 0);
    directory_fd_.Reset(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    file_ = Make("f");
    struct stat status {};
    ASSERT_EQ(::fstat(file_.get(), &status), 0);
    inode_ = status.st_ino;

    auto made = gate::Memory::Make();
    SALIUS_CHECK(made.ok());
    memory_ = *std::move(made);
    const std::string gate = absl::StrCat("/tmp/salius-files.", ::getpid());
    auto started = gate::Server::Start(
        gate, *memory_, insiders_,
        [](Seq, DurableCallback done) { std::move(done)(absl::OkStatus()); });
    SALIUS_CHECK(started.ok());
    server_ = *std::move(started);

    const UniqueFd shared(::memfd_create("shared", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(shared.get(), sizeof(gate::Shared)), 0);
    void* const at = ::mmap(nullptr, sizeof(gate::Shared), PROT_READ | PROT_WRITE, MAP_SHARED,
                            shared.get(), 0);
    ASSERT_NE(at, MAP_FAILED);
    auto* const memory = static_cast<gate::Shared*>(at);
    memory->magic = gate::kSharedMagic;
    memory->count = 1;
    memory->session = 5;
    memory->mounts[0].device = status.st_dev;
    std::strcpy(memory->mounts[0].gate, gate.c_str());
    ::munmap(at, sizeof(gate::Shared));
    ASSERT_EQ(files_.gates().Attach(shared.get()), 0);
  }
  void TearDown() override {
    for (const char* name : {"f", "g"}) ::unlink(absl::StrCat(directory_, "/", name).c_str());
    ::rmdir(directory_.c_str());
  }

  UniqueFd Make(const char* name) {
    return UniqueFd(::open(absl::StrCat(directory_, "/", name).c_str(),
                           O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  }
  gate::Page& page() { return memory_->page(); }
  // Returns what AskEarly returns when the daemon grants it.
  uint64_t Granted() { return MountedFiles::GrantOf(inode_, page().mapped); }
  bool SyncsEarly(uint64_t grant) { return files_.SyncsEarly(file_.get(), grant); }
  bool OwesDirectory() { return files_.OweDirectory(directory_fd_.get()); }

  std::string directory_;
  UniqueFd directory_fd_, file_;
  uint64_t inode_ = 0;
  gate::Insiders insiders_;
  std::unique_ptr<gate::Memory> memory_;
  std::unique_ptr<gate::Server> server_;
  MountedFiles files_;
};

TEST_F(MountedFilesTest, GrantEndsWithASharedMap) {
  const uint64_t granted = Granted();
  EXPECT_TRUE(SyncsEarly(granted));
  page().Store(7, 3);  // undurable records are for outputs to wait for
  EXPECT_TRUE(SyncsEarly(granted));
  page().CountMapped();
  EXPECT_FALSE(SyncsEarly(granted));
  EXPECT_TRUE(SyncsEarly(Granted()));
}

TEST_F(MountedFilesTest, RefusalGrantsNothing) {
  EXPECT_EQ(files_.AskEarly(file_.get()), 0u);  // no daemon serves this file
  EXPECT_FALSE(SyncsEarly(0));
}

TEST_F(MountedFilesTest, DaemonThatDoesNotCountGrantsNothing) {
  for (const uint32_t mapped : {0u, gate::kUncounted}) {
    page().mapped = mapped;
    EXPECT_FALSE(SyncsEarly(Granted())) << mapped;
    EXPECT_FALSE(SyncsEarly(MountedFiles::GrantOf(inode_, 0))) << mapped;
  }
  page().CountMapped();
  EXPECT_EQ(page().mapped, gate::kUncounted);
}

TEST_F(MountedFilesTest, GrantIsForItsFileOnly) {
  const uint64_t granted = Granted();
  const UniqueFd other = Make("g");
  ASSERT_EQ(::dup2(other.get(), file_.get()), file_.get());
  EXPECT_FALSE(SyncsEarly(granted));
}

TEST_F(MountedFilesTest, NothingIsEarlyOnceTheVolumeHasFailed) {
  EXPECT_TRUE(OwesDirectory());
  page().failed = 1;
  EXPECT_FALSE(SyncsEarly(Granted()));
  EXPECT_FALSE(OwesDirectory());
}

TEST_F(MountedFilesTest, NothingIsEarlyOnceTheVolumeIsReadOnly) {
  const uint64_t granted = Granted();
  page().EndGrants();
  EXPECT_FALSE(SyncsEarly(granted));
  EXPECT_FALSE(SyncsEarly(Granted()));
  EXPECT_FALSE(OwesDirectory());
}

TEST_F(MountedFilesTest, NothingIsEarlyOnceTheDaemonHasEnded) {
  server_.reset();
  EXPECT_FALSE(SyncsEarly(Granted()));
  EXPECT_FALSE(OwesDirectory());
}

TEST_F(MountedFilesTest, NothingIsEarlyOnceEarlyReturnHasEnded) {
  ASSERT_TRUE(files_.gates().EndEarly(gate::kSharedMap));
  EXPECT_FALSE(SyncsEarly(Granted()));
  EXPECT_FALSE(OwesDirectory());
}

TEST_F(MountedFilesTest, NothingIsEarlyInAChildThatCannotRegister) {
  const std::string gate = absl::StrCat("/tmp/salius-files.", ::getpid());
  ASSERT_EQ(::rename(gate.c_str(), absl::StrCat(gate, ".away").c_str()), 0);
  files_.AfterFork();
  EXPECT_FALSE(SyncsEarly(Granted()));
  EXPECT_FALSE(OwesDirectory());
  ASSERT_EQ(::rename(absl::StrCat(gate, ".away").c_str(), gate.c_str()), 0);
  files_.AfterFork();
  EXPECT_TRUE(SyncsEarly(Granted()));
  EXPECT_TRUE(OwesDirectory());
}

TEST_F(MountedFilesTest, OnlyOpenDirectoriesOfTheMountAreEarly) {
  EXPECT_FALSE(files_.OweDirectory(file_.get()));
  const UniqueFd path(::open(directory_.c_str(), O_PATH | O_CLOEXEC));
  EXPECT_FALSE(files_.OweDirectory(path.get()));  // the kernel refuses it
  const UniqueFd elsewhere(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_FALSE(files_.OweDirectory(elsewhere.get()));
}

}  // namespace
}  // namespace salius::preload
