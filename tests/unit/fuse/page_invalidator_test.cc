// Pages are dropped before the callback, and one drop that waits delays no other.
#include "client/fuse/page_invalidator.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/event.h"

namespace salius {
namespace {

constexpr std::chrono::milliseconds kBound{20'000};

TEST(PageInvalidatorTest, NotifiesWithTheRangeThenCallsBack) {
  PageInvalidator invalidator;
  std::string seen;
  invalidator.SetNotify([&](uint64_t nodeid, uint64_t offset, uint64_t length) {
    absl::StrAppend(&seen, nodeid, " ", offset, " ", length);
  });
  invalidator.Run(7, 4096, 8192, [&] { absl::StrAppend(&seen, ", then"); });
  invalidator.AwaitIdle();
  EXPECT_EQ(seen, "7 4096 8192, then");
}

TEST(PageInvalidatorTest, ADropThatWaitsKeepsNoOtherBack) {
  PageInvalidator invalidator;
  Event go_on;
  Event other_ended;
  invalidator.SetNotify([&](uint64_t nodeid, uint64_t, uint64_t) {
    if (nodeid == 1) {
      EXPECT_TRUE(go_on.WaitFor(kBound));
    }
  });
  std::atomic<bool> ended{false};
  invalidator.Run(1, 0, 0, [&] { ended = true; });
  invalidator.Run(2, 0, 0, [&] { other_ended.Set(); });
  EXPECT_TRUE(other_ended.WaitFor(kBound));
  EXPECT_FALSE(ended);
  go_on.Set();
  invalidator.AwaitIdle();
  EXPECT_TRUE(ended);
}

TEST(PageInvalidatorTest, MoreTasksThanThreadsAllEnd) {
  std::atomic<int> count{0};
  {
    PageInvalidator invalidator;
    invalidator.SetNotify([](uint64_t, uint64_t, uint64_t) {});
    for (int i = 0; i < 1000; ++i) invalidator.Run(1, 0, 0, [&] { ++count; });
  }  // its end waits for them
  EXPECT_EQ(count, 1000);
}

TEST(PageInvalidatorTest, OneThreadDoesAllWhenNoOtherCanBeStarted) {
  std::atomic<int> started{0};
  std::atomic<int> count{0};
  Event go_on;
  {
    PageInvalidator invalidator([&](std::function<void()> run) {
      if (++started > 1) throw std::system_error(EAGAIN, std::generic_category());
      return std::thread(std::move(run));
    });
    invalidator.SetNotify([&](uint64_t, uint64_t, uint64_t) {
      EXPECT_TRUE(go_on.WaitFor(kBound));
    });
    for (int i = 0; i < 100; ++i) invalidator.Run(1, 0, 0, [&] { ++count; });
    go_on.Set();
  }
  EXPECT_EQ(count, 100);
  EXPECT_GT(started, 1);
}

TEST(PageInvalidatorTest, IdleWithoutTasks) {
  PageInvalidator invalidator;
  invalidator.AwaitIdle();
}

}  // namespace
}  // namespace salius
