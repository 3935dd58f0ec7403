#include "common/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace salius {
namespace {

TEST(OnAllCpus, CallsEveryNumberOnce) {
  for (const size_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> calls(count);
    OnAllCpus(count, [&](size_t i) { ++calls[i]; });
    for (const auto& call : calls) EXPECT_EQ(call, 1);
  }
}

}  // namespace
}  // namespace salius
