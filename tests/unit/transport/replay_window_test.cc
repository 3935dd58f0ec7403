// The replay window against a set of all counters that it took (RapidCheck).
#include "transport/replay_window.h"

#include <algorithm>
#include <set>

#include "gtest/gtest.h"
// After gtest, which it needs.
#include <rapidcheck/gtest.h>

namespace salius {
namespace {

using Verdict = ReplayWindow::Verdict;
constexpr uint64_t kCounters = ReplayWindow::kCounters;

// Returns a number below `bound`, each equally often.
uint64_t Below(uint64_t bound) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, bound));
}

// Returns a counter near the newest one, near the end of the window, or far away.
uint64_t NextCounter(uint64_t newest) {
  switch (Below(6)) {
    case 0:
      return newest + 1;
    case 1:
      return newest + 1 + Below(130);
    case 2:
      return newest + kCounters - 65 + Below(130);
    case 3:
      return std::max<uint64_t>(1, newest - std::min(newest, Below(130)));
    case 4: {
      const uint64_t back = kCounters - 65 + Below(130);
      return newest > back ? newest - back : 1;
    }
    default:
      return newest + Below(3 * kCounters) + 1;
  }
}

RC_GTEST_PROP(ReplayWindowProperty, AcceptsEachCounterOnceAndNoneBeforeTheWindow, ()) {
  ReplayWindow window;
  std::set<uint64_t> taken;
  for (uint64_t step = 0, steps = 50 + Below(300); step < steps; ++step) {
    const uint64_t newest = taken.empty() ? 0 : *taken.rbegin();
    const uint64_t counter = NextCounter(newest);
    Verdict right = taken.contains(counter) ? Verdict::kSeen : Verdict::kNew;
    if (newest >= counter && newest - counter >= kCounters) right = Verdict::kTooOld;
    RC_ASSERT(window.Check(counter) == right);
    if (right == Verdict::kNew && Below(4) != 0) {
      window.Take(counter);
      taken.insert(counter);
    }
    RC_ASSERT(window.newest() == (taken.empty() ? 0 : *taken.rbegin()));
  }
  const uint64_t newest = window.newest();
  for (uint64_t back = 0; back < std::min(kCounters, newest); ++back) {
    RC_ASSERT(window.Check(newest - back) ==
              (taken.contains(newest - back) ? Verdict::kSeen : Verdict::kNew));
  }
}

TEST(ReplayWindowTest, SecondDatagramWithACounterIsSeen) {
  ReplayWindow window;
  EXPECT_EQ(window.Check(7), Verdict::kNew);
  window.Take(7);
  EXPECT_EQ(window.Check(7), Verdict::kSeen);
}

TEST(ReplayWindowTest, ReorderedDatagramIsNewOnce) {
  ReplayWindow window;
  window.Take(100);
  EXPECT_EQ(window.Check(99), Verdict::kNew);
  window.Take(99);
  EXPECT_EQ(window.Check(99), Verdict::kSeen);
}

TEST(ReplayWindowTest, CounterBeforeTheWindowIsTooOld) {
  ReplayWindow window;
  window.Take(kCounters + 5);
  EXPECT_EQ(window.Check(5), Verdict::kTooOld);
  EXPECT_EQ(window.Check(6), Verdict::kNew);
}

TEST(ReplayWindowTest, JumpOverTheWholeWindowForgetsItsBits) {
  ReplayWindow window;
  for (uint64_t counter = 1; counter <= kCounters; ++counter) window.Take(counter);
  window.Take(5 * kCounters);
  EXPECT_EQ(window.Check(5 * kCounters - 1), Verdict::kNew);
  EXPECT_EQ(window.Check(kCounters), Verdict::kTooOld);
}

}  // namespace
}  // namespace salius
