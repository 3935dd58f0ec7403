#include "common/json.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"

namespace salius {
namespace {

TEST(JsonTest, MembersKeepTheirOrder) {
  const Json value = {{"t", "x"}, {"n", UINT64_MAX}, {"b", false}, {"a", {1, 2}}};
  EXPECT_EQ(JsonLine(value), R"({"t":"x","n":18446744073709551615,"b":false,"a":[1,2]})");
}

TEST(JsonTest, QuotesAndControlCharactersAreEscaped) {
  EXPECT_EQ(JsonLine("a\"b\\c\n\x01"), R"("a\"b\\c\n\u0001")");
}

TEST(JsonTest, OnlyBytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(JsonLine("\xC3\xA9\xFF."), "\"\xC3\xA9\xEF\xBF\xBD.\"");
}

TEST(JsonTest, FractionsHaveThreeDecimals) {
  EXPECT_EQ(JsonLine({JsonFraction(0.12345), JsonFraction(2)}), "[0.123,2.0]");
}

}  // namespace
}  // namespace salius
