#include "common/ids.h"

#include "absl/container/flat_hash_set.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

constexpr char kText[] = "0123abcd-4567-89ef-0011-223344556677";

TEST(VolumeIdTest, TextFormRoundTrips) {
  const auto id = ParseVolumeId(kText);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(id->bytes[0], 0x01);
  EXPECT_EQ(id->bytes[15], 0x77);
  EXPECT_EQ(id->ToString(), kText);
}

TEST(VolumeIdTest, UpperCaseIsAcceptedAndNormalised) {
  const auto id = ParseVolumeId("0123ABCD-4567-89EF-0011-223344556677");
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(id->ToString(), kText);
}

TEST(VolumeIdTest, BadTextIsRefused) {
  for (const char* text :
       {"", "0123abcd", "0123abcd-4567-89ef-0011-22334455667",
        "0123abcd-4567-89ef-0011-2233445566777", "0123abcd+4567-89ef-0011-223344556677",
        "0123abcg-4567-89ef-0011-223344556677", "0123abcd4-567-89ef-0011-223344556677"}) {
    EXPECT_EQ(ParseVolumeId(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(VolumeIdTest, RandomOnesDifferAndAreVersionFour) {
  const VolumeId a = VolumeId::Random();
  const VolumeId b = VolumeId::Random();
  EXPECT_NE(a, b);
  EXPECT_EQ(a.ToString()[14], '4');
  EXPECT_EQ(*ParseVolumeId(a.ToString()), a);
}

TEST(VolumeIdTest, OrdersByBytesAndHashes) {
  VolumeId a;
  VolumeId b;
  b.bytes[15] = 1;
  EXPECT_LT(a, b);
  const absl::flat_hash_set<VolumeId> set = {a, b, a};
  EXPECT_EQ(set.size(), 2u);
}

}  // namespace
}  // namespace salius
