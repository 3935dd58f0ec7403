// File handles in 16 bytes.
#include "storage/compact_handle.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace salius {
namespace {

TEST(CompactHandleTest, HandleOfEveryLengthComesBack) {
  for (size_t size = 1; size <= 128; ++size) {
    const FileHandle handle{129, std::string(size, static_cast<char>(size))};
    ASSERT_TRUE(CompactHandle::Holds(handle));
    CompactHandle compact(handle);
    EXPECT_EQ(compact.ToHandle(), handle);
    CompactHandle moved(std::move(compact));
    EXPECT_EQ(moved.ToHandle(), handle);
    CompactHandle assigned(FileHandle{1, std::string(40, 'x')});
    assigned = std::move(moved);
    EXPECT_EQ(assigned.ToHandle(), handle);
  }
}

TEST(CompactHandleTest, EmptyOneHoldsNothing) {
  EXPECT_TRUE(CompactHandle().empty());
  EXPECT_FALSE(CompactHandle(FileHandle{1, "a"}).empty());
}

TEST(CompactHandleTest, HandlesThatTheKernelDoesNotGiveAreRefused) {
  EXPECT_FALSE(CompactHandle::Holds({1, ""}));
  EXPECT_FALSE(CompactHandle::Holds({1, std::string(129, 'x')}));
  EXPECT_FALSE(CompactHandle::Holds({256, "x"}));
  EXPECT_FALSE(CompactHandle::Holds({-1, "x"}));
}

}  // namespace
}  // namespace salius
