// The threads that do the work of lanes.
#include "client/volume/lane_workers.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "common/event.h"

namespace salius {
namespace {

constexpr std::chrono::milliseconds kBound{60'000};

// A limit of processes must not end the daemon, which has all of the volume.
TEST(LaneWorkersTest, OneThreadDoesAllWhenNoOtherCanBeStarted) {
  constexpr int kWorks = 100;
  std::atomic<int> started{0};
  std::atomic<int> done{0};
  Event go_on;
  Event all_done;
  const auto workers = MakeLaneWorkers(32, [&](std::function<void()> run) {
    if (++started > 1) throw std::system_error(EAGAIN, std::generic_category());
    return std::thread(std::move(run));
  });
  for (int i = 0; i < kWorks; ++i) {
    workers->Run({}, [&] {
      EXPECT_TRUE(go_on.WaitFor(kBound));
      if (++done == kWorks) all_done.Set();
    });
  }
  go_on.Set();
  EXPECT_TRUE(all_done.WaitFor(kBound));
  EXPECT_GT(started, 1);
  workers->Stop();
}

TEST(LaneWorkersTest, WorkThatWaitsKeepsNoOtherBack) {
  const auto workers = MakeLaneWorkers(32);
  Event go_on;
  Event other_ended;
  workers->Run({}, [&] { EXPECT_TRUE(go_on.WaitFor(kBound)); });
  workers->Run({}, [&] { other_ended.Set(); });
  EXPECT_TRUE(other_ended.WaitFor(kBound));
  go_on.Set();
  workers->Stop();
}

}  // namespace
}  // namespace salius
