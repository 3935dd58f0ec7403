// Lookup counts of the kernel: an id lives as long as the kernel owns a lookup.
#include "client/fuse/node_ids.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/volume/node.h"
#include "storage/backing.h"

namespace salius {
namespace {

class NodeIdsTest : public testing::Test {
 protected:
  // NodeIds uses no file of a node: these have none.
  NodeIdsTest() {
    for (uint64_t i = 0; i < 8; ++i) nodes_.emplace_back(BackingFd(), stat_, Seq{0}, i, cache_);
  }
  Node& NodeAt(size_t i) { return nodes_[i]; }

  const struct stat stat_ {};
  PathFdCache cache_{LinuxBacking()};
  std::deque<Node> nodes_;
  Node& root_ = NodeAt(0);
  NodeIds ids_{root_};
};

TEST_F(NodeIdsTest, RootKeepsItsId) {
  EXPECT_EQ(ids_.Find(NodeIds::kRoot), &root_);
  EXPECT_EQ(ids_.AddLookup(root_), NodeIds::kRoot);
  EXPECT_EQ(ids_.Forget(NodeIds::kRoot, 5).node, nullptr);
  EXPECT_EQ(ids_.Find(NodeIds::kRoot), &root_);
}

TEST_F(NodeIdsTest, LookupsOfOneNodeShareItsId) {
  const uint64_t id = ids_.AddLookup(NodeAt(1));
  EXPECT_EQ(ids_.AddLookup(NodeAt(1)), id);
  EXPECT_NE(ids_.AddLookup(NodeAt(2)), id);
  EXPECT_EQ(ids_.Find(id), &NodeAt(1));
}

TEST_F(NodeIdsTest, LastForgetTakesTheIdBack) {
  const uint64_t id = ids_.AddLookup(NodeAt(1));
  ids_.AddLookup(NodeAt(1));
  EXPECT_EQ(ids_.Forget(id, 1).lookups, 1u);
  EXPECT_EQ(ids_.Find(id), &NodeAt(1));
  const NodeIds::Forgotten last = ids_.Forget(id, 1);
  EXPECT_EQ(last.node, &NodeAt(1));
  EXPECT_EQ(last.lookups, 1u);
  EXPECT_EQ(ids_.Find(id), nullptr);
}

TEST_F(NodeIdsTest, ForgetTakesNoMoreThanTheCount) {
  const uint64_t id = ids_.AddLookup(NodeAt(1));
  EXPECT_EQ(ids_.Forget(id, 0).lookups, 0u);
  EXPECT_EQ(ids_.Forget(id, UINT64_MAX).lookups, 1u);
  EXPECT_EQ(ids_.Forget(id, 1).node, nullptr);
}

TEST_F(NodeIdsTest, LookupAfterTheLastForgetGetsAnotherId) {
  const uint64_t before = ids_.AddLookup(NodeAt(1));
  ids_.Forget(before, 1);
  const uint64_t after = ids_.AddLookup(NodeAt(1));
  EXPECT_NE(after, before);
  EXPECT_EQ(ids_.Find(before), nullptr);
  EXPECT_EQ(ids_.Find(after), &NodeAt(1));
}

TEST_F(NodeIdsTest, RandomIdsAreUnknown) {
  const uint64_t id = ids_.AddLookup(NodeAt(1));
  std::mt19937_64 random(2);
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t hostile = random() >> (random() % 64);
    if (hostile == id || hostile == NodeIds::kRoot) continue;
    ASSERT_EQ(ids_.Find(hostile), nullptr) << hostile;
    ASSERT_EQ(ids_.Forget(hostile, random()).node, nullptr) << hostile;
  }
  EXPECT_EQ(ids_.Find(id), &NodeAt(1));
}

// Plays the kernel: some threads look nodes up while others forget what was given, in other counts.
// Every lookup that was given is found until it is forgotten, and no count is lost.
TEST_F(NodeIdsTest, LookupsAndForgetsOfOneNodeMayRace) {
  constexpr int kRounds = 50'000;
  constexpr int kThreads = 2;
  absl::Mutex mutex;
  std::deque<uint64_t> given;  // one entry for each lookup that the kernel owns
  std::atomic<int> looking{kThreads};
  std::atomic<uint64_t> lookups{0};
  std::atomic<uint64_t> forgotten{0};
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        Node& node = NodeAt(1 + static_cast<size_t>(i + t) % 2);
        const uint64_t id = ids_.AddLookup(node);
        if (ids_.Find(id) != &node) wrong.fetch_add(1);
        lookups.fetch_add(1);
        const absl::MutexLock lock(&mutex);
        given.push_back(id);
      }
      looking.fetch_sub(1);
    });
  }
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      while (true) {
        uint64_t id = 0;
        uint64_t count = 0;
        {
          const absl::MutexLock lock(&mutex);
          if (given.empty() && looking.load() == 0) return;
          while (!given.empty() && count < 3 && (count == 0 || given.front() == id)) {
            id = given.front();
            given.pop_front();
            ++count;
          }
        }
        if (count == 0) continue;
        if (ids_.Find(id) == nullptr || ids_.Forget(id, count).lookups != count) wrong.fetch_add(1);
        forgotten.fetch_add(count);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(forgotten.load(), lookups.load());
}

}  // namespace
}  // namespace salius
