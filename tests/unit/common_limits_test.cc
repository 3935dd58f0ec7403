// The bounds of common/limits.h hold together.
#include "common/limits.h"

#include <limits.h>
#include <linux/limits.h>

#include "gtest/gtest.h"

namespace salius {
namespace {

TEST(LimitsTest, FileSystemBoundsAreTheKernels) {
  EXPECT_EQ(kMaxNameBytes, static_cast<size_t>(NAME_MAX));
  EXPECT_EQ(kMaxXattrValue, static_cast<size_t>(XATTR_SIZE_MAX));
  EXPECT_EQ(kMaxXattrNameBytes, static_cast<size_t>(XATTR_NAME_MAX));
  EXPECT_EQ(kMaxPathBytes, static_cast<size_t>(PATH_MAX - 1));
}

TEST(LimitsTest, LargestXattrFitsOneRecord) {
  EXPECT_LT(kMaxXattrValue + kMaxXattrNameBytes, kMaxRecordBody);
}

TEST(LimitsTest, StableLogHoldsEverythingThatIsNotCheckpointed) {
  EXPECT_GT(kDefaultStableLogBytes, kDefaultLogMaxBytes);
}

TEST(LimitsTest, OneRecordFitsOneSegment) { EXPECT_LT(kMaxRecordBody, kSegmentBytes); }

}  // namespace
}  // namespace salius
