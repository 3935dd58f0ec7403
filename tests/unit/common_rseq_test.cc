#include "common/rseq.h"

#include <sched.h>
#include <sys/rseq.h>

#include <thread>

#include "gtest/gtest.h"

namespace salius {
namespace {

// Returns the value that the kernel last wrote; negative while the thread is not registered.
int RegisteredCpu() {
  const auto* const area = reinterpret_cast<const struct rseq*>(
      static_cast<const char*>(__builtin_thread_pointer()) + __rseq_offset);
  return static_cast<int>(*static_cast<const volatile unsigned*>(&area->cpu_id));
}

TEST(RseqTest, AThreadLeavesAndOthersStay) {
  if (__rseq_size == 0) {  // the C library registers no thread (glibc.pthread.rseq=0)
    EXPECT_FALSE(LeaveRestartableSequences());
    return;
  }
  ASSERT_GE(RegisteredCpu(), 0);
  std::thread([] {
    ASSERT_GE(RegisteredCpu(), 0);
    EXPECT_TRUE(LeaveRestartableSequences());
    EXPECT_LT(RegisteredCpu(), 0);
    EXPECT_GE(sched_getcpu(), 0);
    EXPECT_FALSE(LeaveRestartableSequences());  // again: nothing happens
    EXPECT_LT(RegisteredCpu(), 0);
  }).join();
  EXPECT_GE(RegisteredCpu(), 0);
}

}  // namespace
}  // namespace salius
