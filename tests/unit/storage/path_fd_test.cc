// Descriptors of nodes: few are open, and every file is found again.
#include "storage/path_fd.h"

#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/check.h"
#include "gtest/gtest.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius {
namespace {

class PathFdTest : public testing::Test {
 protected:
  // Makes a file with its number as size.
  std::unique_ptr<PathFd> Make(int number) {
    const std::string name = "f" + std::to_string(number);
    SALIUS_CHECK_OK(memory_.Truncate(memory_.NewFile(name).get(), static_cast<uint64_t>(number)));
    return std::make_unique<PathFd>(Path(name), dev_, cache_);
  }
  BackingFd Path(const std::string& name) {
    auto fd = memory_.OpenChild(memory_.root(), name);
    SALIUS_CHECK_OK(fd) << name;
    return std::move(*fd);
  }
  void Configure(size_t limit) { cache_.Configure(memory_.root(), dev_, limit); }
  void Unlink(const std::string& name) { SALIUS_CHECK_OK(memory_.Unlink(memory_.root(), name, 0)); }
  int64_t SizeOf(const PathFd& fd) {
    const auto st = memory_.Stat(fd.get());
    return st.ok() ? st->st_size : -1;
  }

  MemoryBacking memory_;
  const dev_t dev_ = memory_.Stat(memory_.root())->st_dev;
  PathFdCache cache_{memory_};
};

TEST_F(PathFdTest, FewAreOpenAndAllAreFound) {
  Configure(4);
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
  Configure(1);
  const auto first = Make(7);
  const PathFd::Use use = first->get();
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 10; i < 20; ++i) fds.push_back(Make(i));
  EXPECT_EQ(memory_.Stat(use)->st_size, 7);
}

TEST_F(PathFdTest, KeptOneOutlivesItsLastName) {
  Configure(1);
  const auto first = Make(7);
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 10; i < 20; ++i) fds.push_back(Make(i));
  {
    const PathFd::Use held = first->get();
    Unlink("f7");
    first->Keep(held);
  }
  for (int i = 20; i < 30; ++i) fds.push_back(Make(i));
  EXPECT_EQ(SizeOf(*first), 7);
}

TEST_F(PathFdTest, KeptOneOutlivesItsLastNameWhenAnotherWasOfferedAndClosedMeanwhile) {
  Configure(1);
  const auto first = Make(7);
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 10; i < 20; ++i) fds.push_back(Make(i));
  {
    const PathFd::Use held = first->get();  // by handle
    first->Offer(Path("f7"));
    Unlink("f7");
    for (int i = 20; i < 30; ++i) fds.push_back(Make(i));
    first->Keep(held);
  }
  for (int i = 30; i < 40; ++i) fds.push_back(Make(i));
  EXPECT_EQ(SizeOf(*first), 7);
}

TEST_F(PathFdTest, ThoseThatMustBeOpenLeaveFewerForOthers) {
  Configure(6);
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

TEST_F(PathFdTest, MoreMustBeOpenThanTheLimitAndOthersAreClosed) {
  Configure(4);
  std::vector<std::unique_ptr<PathFd>> kept;
  for (int i = 0; i < 6; ++i) {
    kept.push_back(Make(i));
    kept.back()->Keep(kept.back()->get());
  }
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 10; i < 20; ++i) fds.push_back(Make(i));
  EXPECT_EQ(cache_.open(), 0u);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(SizeOf(*kept[i]), i);
  for (int i = 10; i < 20; ++i) EXPECT_EQ(SizeOf(*fds[i - 10]), i);
}

TEST_F(PathFdTest, OneOfAnotherFileSystemStaysOpen) {
  cache_.Configure(memory_.root(), dev_ + 1, 1);
  std::vector<std::unique_ptr<PathFd>> fds;
  for (int i = 0; i < 10; ++i) fds.push_back(Make(i));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(SizeOf(*fds[i]), i);
}

TEST_F(PathFdTest, FileThatIsGoneGivesABadDescriptorNotAnotherFile) {
  Configure(0);
  const auto first = Make(7);
  const auto second = Make(8);
  Unlink("f7");
  EXPECT_EQ(SizeOf(*first), -1);
  EXPECT_EQ(SizeOf(*second), 8);
}

TEST_F(PathFdTest, OneThatBeginsWithAHandleIsOpenedAtItsFirstUse) {
  Configure(4);
  const auto opened = Make(7);
  const size_t before = memory_.open();
  const PathFd later(*memory_.HandleOf(opened->get()), dev_, cache_);
  EXPECT_EQ(memory_.open(), before);
  EXPECT_EQ(SizeOf(later), 7);
  EXPECT_EQ(memory_.open(), before + 1);
  EXPECT_EQ(cache_.open(), 2u);
}

TEST_F(PathFdTest, OfferedDescriptorIsTakenWhenThereIsNone) {
  Configure(0);
  const auto first = Make(7);
  first->Offer(Path("f7"));
  EXPECT_EQ(SizeOf(*first), 7);
}

TEST_F(PathFdTest, ManyThreadsUseMoreFilesThanMayBeOpen) {
  Configure(3);
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
