// The table of nodes.
#include "client/volume/node.h"

#include <fcntl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "gtest/gtest.h"
#include "storage/backing.h"

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

}  // namespace
}  // namespace salius
