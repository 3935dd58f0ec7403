// The table of nodes.
#include "client/volume/node.h"

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "common/check.h"
#include "storage/backing.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius {
namespace {

// Until the new node exists, an earlier one of the same file may stamp records, and be destroyed.
TEST(NodeTableTest, NodeIsMadeUnderTheLockThatReadsIssued) {
  std::function<Seq()> issued;
  NodeTable table(LinuxBacking(), [&] { return issued(); });
  std::atomic<bool> looked_up = false;
  std::thread other;
  issued = [&] {
    other = std::thread([&] {
      table.Find(7);
      looked_up = true;
    });
    // It has to wait; otherwise it would be done long before this ends.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (!looked_up && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_FALSE(looked_up);
    return Seq{5};
  };
  const auto open_here = [] { return *LinuxBacking().OpenAt(AT_FDCWD, ".", O_PATH | O_DIRECTORY); };
  const auto node = table.Intern(open_here());
  other.join();
  ASSERT_TRUE(node.ok());
  EXPECT_EQ((*node)->born_seq, 5u);
  issued = [] { return Seq{6}; };
  ASSERT_TRUE(table.Intern(open_here()).ok());
  EXPECT_EQ((*node)->born_seq, 5u);
}

TEST(NodeTableTest, RootHasItsIdAndStays) {
  NodeTable table(LinuxBacking(), [] { return Seq{0}; });
  ASSERT_TRUE(table.MakeRoot(*LinuxBacking().OpenAt(AT_FDCWD, ".", O_PATH | O_DIRECTORY)).ok());
  EXPECT_EQ(table.root().id.load(), kRootFileId);
  EXPECT_EQ(table.root().generation, 0u);
  EXPECT_EQ(table.Find(kRootFileId).get(), &table.root());
}

// Files in memory, and their nodes.
class MemoryNodesTest : public testing::Test {
 protected:
  MemoryNodesTest() {
    SALIUS_CHECK_OK(table_.MakeRoot(Open(".")));
    table_.path_fds().Configure(memory_.root(), table_.root().dev(), 100);
    memory_.NewFile("f");
  }
  BackingFd Open(const std::string& name) {
    return *memory_.OpenAt(memory_.root(), name, O_PATH | O_NOFOLLOW);
  }

  MemoryBacking memory_;
  Seq issued_ = 5;
  NodeTable table_{memory_, [this] { return issued_; }};
};

TEST_F(MemoryNodesTest, ListedFileHasNoDescriptorUntilItIsUsed) {
  const size_t before = memory_.open();
  const auto listed = table_.InternListed(Open("f"), 5);
  ASSERT_TRUE(listed.ok());
  EXPECT_TRUE(listed->current);
  EXPECT_EQ(listed->attr.st_ino, listed->node->ino);
  EXPECT_EQ(memory_.open(), before);
  EXPECT_EQ(memory_.Stat(listed->node->path_fd.get())->st_ino, listed->node->ino);
  EXPECT_EQ(memory_.open(), before + 1);
}

TEST_F(MemoryNodesTest, ListedDirectoryKeepsItsDescriptor) {
  SALIUS_CHECK_OK(memory_.MkdirAt(memory_.root(), "d", 0755));
  const size_t before = memory_.open();
  ASSERT_TRUE(table_.InternListed(Open("d"), 5).ok());
  const auto listed = table_.InternListed(Open("d"), 5);
  EXPECT_EQ(memory_.open(), before + 1);
}

TEST_F(MemoryNodesTest, AttributesOfAnOlderNodeOrOfAnEarlierSeqAreNotCurrent) {
  const auto later = table_.InternListed(Open("f"), 4);
  EXPECT_FALSE(later->current);
  const auto known = table_.InternListed(Open("f"), 5);
  EXPECT_FALSE(known->current);
  EXPECT_EQ(known->node.get(), later->node.get());
}

TEST_F(MemoryNodesTest, NodeIsFoundByInodeNumberWhileItIsInUse) {
  ino_t ino = 0;
  {
    const auto node = table_.Intern(Open("f"));
    ino = (*node)->ino;
    EXPECT_EQ(table_.FindInode(ino).get(), node->get());
  }
  EXPECT_FALSE(table_.FindInode(ino));
}

TEST_F(MemoryNodesTest, PartForChangesIsMadeAtTheFirstChange) {
  const auto node = table_.Intern(Open("f"));
  {
    absl::MutexLock lock(&(*node)->state);
    EXPECT_EQ((*node)->seen_records().unapplied, 0u);
    EXPECT_FALSE((*node)->was_changed());
    (*node)->records().last_seq = 3;
    EXPECT_EQ((*node)->seen_records().last_seq, 3u);
  }
  EXPECT_TRUE((*node)->was_changed());
}

TEST_F(MemoryNodesTest, ThreadsMakeOnePartForChanges) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  for (int i = 0; i < kRounds; ++i) {
    const auto node = table_.Intern(Open("f"));
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] { (*node)->bulk_writes().fetch_add(1); });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ((*node)->bulk_writes().load(), kThreads);
  }
}

}  // namespace
}  // namespace salius
