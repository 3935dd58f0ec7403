// Descriptors of nodes: few are open, and every file is found again.
#include "storage/path_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "storage/backing.h"

namespace salius {
namespace {

class PathFdTest : public testing::Test {
 protected:
  void SetUp() override {
    // On the test's disk: not every tmpfs has file handles.
    std::string name = testing::TempDir() + "/path-fd-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = UniqueFd(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(root_.valid());
    struct stat st {};
    ASSERT_EQ(::fstat(root_.get(), &st), 0);
    dev_ = st.st_dev;
    // open_by_handle_at needs a right that not every test run has.
    const absl::StatusOr<FileHandle> handle = HandleOf(root_.get(), "", AT_EMPTY_PATH);
    if (!handle.ok() || !OpenByHandle(root_.get(), *handle, O_PATH).ok()) {
      GTEST_SKIP() << "no file handles here";
    }
  }

  // Makes a file with its number as size.
  std::unique_ptr<PathFd> Make(int number) {
    const std::string name = "f" + std::to_string(number);
    UniqueFd file(::openat(root_.get(), name.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    EXPECT_EQ(::ftruncate(file.get(), number), 0);
    return std::make_unique<PathFd>(Path(name), dev_, cache_);
  }
  UniqueFd Path(const std::string& name) {
    return UniqueFd(::openat(root_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  }
  static int64_t SizeOf(const PathFd& fd) {
    struct stat st {};
    return ::fstat(fd.get(), &st) == 0 ? st.st_size : -1;
  }

  UniqueFd root_;
  dev_t dev_ = 0;
  PathFdCache cache_{LinuxBacking()};
};

TEST_F(PathFdTest, FewAreOpenAndAllAreFound) {
  cache_.Configure(root_.get(), dev_, 4);
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 0; i < 50; ++i) fds.push_back(Make(i));
  EXPECT_EQ(cache_.open(), 4u);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 50; ++i) EXPECT_EQ(SizeOf(*fds[i]), i);
  }
  EXPECT_LE(cache_.open(), 4u);
}

TEST_F(PathFdTest, NothingIsClosedBeforeItIsConfigured) {
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 0; i < 10; ++i) fds.push_back(Make(i));
  EXPECT_EQ(cache_.open(), 10u);
}

TEST_F(PathFdTest, DescriptorInUseIsNotClosed) {
  cache_.Configure(root_.get(), dev_, 1);
  const auto first = Make(7);
  const PathFd::Use use = first->get();
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 0; i < 10; ++i) fds.push_back(Make(i));
  struct stat st {};
  EXPECT_EQ(::fstat(use, &st), 0);
  EXPECT_EQ(st.st_size, 7);
}

TEST_F(PathFdTest, KeptOneOutlivesItsLastName) {
  cache_.Configure(root_.get(), dev_, 1);
  const auto first = Make(7);
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 10; i < 20; ++i) fds.push_back(Make(i));
  {
    const PathFd::Use held = first->get();
    ASSERT_EQ(::unlinkat(root_.get(), "f7", 0), 0);
    first->Keep(held);
  }
  for (int i = 20; i < 30; ++i) fds.push_back(Make(i));
  EXPECT_EQ(SizeOf(*first), 7);
}

TEST_F(PathFdTest, KeptOneOutlivesItsLastNameWhenAnotherWasOfferedAndClosedMeanwhile) {
  cache_.Configure(root_.get(), dev_, 1);
  const auto first = Make(7);
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 10; i < 20; ++i) fds.push_back(Make(i));
  {
    const PathFd::Use held = first->get();  // by handle
    first->Offer(Path("f7"));
    ASSERT_EQ(::unlinkat(root_.get(), "f7", 0), 0);
    for (int i = 20; i < 30; ++i) fds.push_back(Make(i));
    first->Keep(held);
  }
  for (int i = 30; i < 40; ++i) fds.push_back(Make(i));
  EXPECT_EQ(SizeOf(*first), 7);
}

TEST_F(PathFdTest, ThoseThatMustBeOpenLeaveFewerForOthers) {
  cache_.Configure(root_.get(), dev_, 6);
  std::vector<std::unique_ptr<PathFd>> kept;
  for (int i = 0; i < 4; ++i) {
    kept.push_back(Make(i));
    kept.back()->Keep(kept.back()->get());
  }
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 10; i < 20; ++i) fds.push_back(Make(i));
  EXPECT_EQ(cache_.open(), 2u);
  kept.clear();
  for (int i = 20; i < 30; ++i) fds.push_back(Make(i));
  EXPECT_EQ(cache_.open(), 6u);
}

TEST_F(PathFdTest, OneOfAnotherFileSystemStaysOpen) {
  cache_.Configure(root_.get(), dev_ + 1, 1);
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 0; i < 10; ++i) fds.push_back(Make(i));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(SizeOf(*fds[i]), i);
}

TEST_F(PathFdTest, FileThatIsGoneGivesABadDescriptorNotAnotherFile) {
  cache_.Configure(root_.get(), dev_, 0);
  const auto first = Make(7);
  const auto second = Make(8);
  ASSERT_EQ(::unlinkat(root_.get(), "f7", 0), 0);
  EXPECT_EQ(SizeOf(*first), -1);
  EXPECT_EQ(SizeOf(*second), 8);
}

TEST_F(PathFdTest, OfferedDescriptorIsTakenWhenThereIsNone) {
  cache_.Configure(root_.get(), dev_, 0);
  const auto first = Make(7);
  first->Offer(Path("f7"));
  EXPECT_EQ(SizeOf(*first), 7);
}

TEST_F(PathFdTest, ManyThreadsUseMoreFilesThanMayBeOpen) {
  cache_.Configure(root_.get(), dev_, 3);
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 0; i < 20; ++i) fds.push_back(Make(i));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const int n = (i * 7 + t) % 20;
        if (SizeOf(*fds[n]) != n) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace salius
