#include "common/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace salius {
namespace {

// Checks that every byte is copied, and none beside them, at all sizes and alignments.
TEST(StreamCopyTest, CopiesExactlyTheBytes) {
  constexpr size_t kAlignments = 65;
  constexpr size_t kAround = 64;
  constexpr uint8_t kOther = 0xee;
  std::vector<uint8_t> from(3 * kStreamBytes + kAlignments);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 256);
  for (const size_t size : {size_t{0}, size_t{1}, kStreamBytes - 1, kStreamBytes, kStreamBytes + 1,
                            kStreamBytes + 63, 2 * kStreamBytes + 17}) {
    for (size_t to_at = 0; to_at < kAlignments; ++to_at) {
      const size_t from_at = to_at * 5 % kAlignments;
      std::vector<uint8_t> to(kAround + to_at + size + kAround, kOther);
      std::vector<uint8_t> expected = to;
      std::copy_n(from.begin() + static_cast<ptrdiff_t>(from_at), size,
                  expected.begin() + static_cast<ptrdiff_t>(kAround + to_at));
      StreamCopy(to.data() + kAround + to_at, from.data() + from_at, size);
      ASSERT_EQ(to, expected) << size << " bytes at " << to_at;
    }
  }
}

}  // namespace
}  // namespace salius
