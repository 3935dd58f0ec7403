// When freed memory is given back to the system.
#include "client/volume/memory_return.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace salius {
namespace {

constexpr absl::Duration kBound = absl::Seconds(30);

TEST(MemoryReturnTest, GivenBackOnceEnoughWasFreed) {
  absl::Notification given;
  MemoryReturn memory(100, std::chrono::milliseconds(1), [&] { given.Notify(); });
  for (int i = 0; i < 100; ++i) memory.NoteFreed();
  EXPECT_TRUE(given.WaitForNotificationWithTimeout(kBound));
}

TEST(MemoryReturnTest, LittleIsNotGivenBack) {
  std::atomic<int> given{0};
  {
    MemoryReturn memory(100, std::chrono::nanoseconds(0), [&] { given.fetch_add(1); });
    for (int i = 0; i < 99; ++i) memory.NoteFreed();
  }
  EXPECT_EQ(given.load(), 0);
}

TEST(MemoryReturnTest, CountBeginsAgainAfterMemoryWasGivenBack) {
  absl::Notification first, second;
  std::atomic<int> given{0};
  MemoryReturn memory(10, std::chrono::milliseconds(1), [&] {
    (given.fetch_add(1) == 0 ? first : second).Notify();
  });
  for (int i = 0; i < 10; ++i) memory.NoteFreed();
  ASSERT_TRUE(first.WaitForNotificationWithTimeout(kBound));
  for (int i = 0; i < 10; ++i) memory.NoteFreed();
  EXPECT_TRUE(second.WaitForNotificationWithTimeout(kBound));
}

TEST(MemoryReturnTest, EndDoesNotWaitForCalm) {
  std::atomic<int> given{0};
  {
    MemoryReturn memory(1, std::chrono::hours(1), [&] { given.fetch_add(1); });
    memory.NoteFreed();
  }
  EXPECT_EQ(given.load(), 0);
}

}  // namespace
}  // namespace salius
