#include "common/config.h"

#include <cstdint>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ConfigReader Read(std::string_view text) {
  auto reader = ConfigReader::Parse(text, "salius.toml");
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

std::string ErrorOf(ConfigReader& reader) {
  const absl::Status status = reader.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(ParseBytesTest, UnitsAreBinaryOrDecimalAsTheySay) {
  EXPECT_EQ(ParseBytes("0").value(), 0u);
  EXPECT_EQ(ParseBytes("4096").value(), 4096u);
  EXPECT_EQ(ParseBytes("512B").value(), 512u);
  EXPECT_EQ(ParseBytes("64KiB").value(), 65536u);
  EXPECT_EQ(ParseBytes("64K").value(), 65536u);
  EXPECT_EQ(ParseBytes("64MiB").value(), uint64_t{64} << 20);
  EXPECT_EQ(ParseBytes("2G").value(), uint64_t{2} << 30);
  EXPECT_EQ(ParseBytes("1TiB").value(), uint64_t{1} << 40);
  EXPECT_EQ(ParseBytes("10kB").value(), 10'000u);
  EXPECT_EQ(ParseBytes("10MB").value(), 10'000'000u);
  EXPECT_EQ(ParseBytes("18446744073709551615").value(), UINT64_MAX);
}

TEST(ParseBytesTest, RefusesEverythingElse) {
  for (const char* text : {"", "MiB", "-1", "+1", "1.5G", "1 MiB", "1mib", "1XiB", " 1",
                           "18446744073709551616", "16777216TiB", "99999999999999999999"}) {
    EXPECT_EQ(ParseBytes(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ParseDurationTest, IsInMicroseconds) {
  EXPECT_EQ(ParseDurationUs("0").value(), 0);
  EXPECT_EQ(ParseDurationUs("500us").value(), 500);
  EXPECT_EQ(ParseDurationUs("50ms").value(), 50'000);
  EXPECT_EQ(ParseDurationUs("1.5s").value(), 1'500'000);
  EXPECT_EQ(ParseDurationUs("1m30s").value(), 90'000'000);
  EXPECT_EQ(ParseDurationUs("1h").value(), int64_t{3'600'000'000});
}

TEST(ParseDurationTest, RefusesEverythingElse) {
  for (const char* text :
       {"", "50", "ms", "-1s", "inf", "-inf", "1ns", "1.5us", "1d", "1 s", "9999999999999h"}) {
    EXPECT_EQ(ParseDurationUs(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ParseDurationTest, TextOfAValueIsTheShortestThatIsReadAsIt) {
  EXPECT_EQ(BytesText(0), "0");
  EXPECT_EQ(BytesText(1472), "1472");
  EXPECT_EQ(BytesText(uint64_t{64} << 20), "64MiB");
  EXPECT_EQ(BytesText(uint64_t{2048} << 40), "2048TiB");
  EXPECT_EQ(DurationText(0), "0s");
  EXPECT_EQ(DurationText(50'000), "50ms");
  EXPECT_EQ(DurationText(90'000'000), "90s");
  EXPECT_EQ(DurationText(int64_t{86'400'000'000}), "24h");
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{1023}, uint64_t{3} << 10, UINT64_MAX}) {
    EXPECT_EQ(ParseBytes(BytesText(bytes)).value(), bytes);
  }
  for (const int64_t us : {int64_t{1}, int64_t{59'000'001}, int64_t{60'000'000}, INT64_MAX}) {
    EXPECT_EQ(ParseDurationUs(DurationText(us)).value(), us);
  }
}

TEST(ConfigReaderTest, ReadsEveryType) {
  ConfigReader reader = Read(R"(
name = "a"
on = true
n = -3
list = ["x", "y"]
[memory]
limit = "64MiB"
raw = 4096
delta = "50ms"
)");
  EXPECT_EQ(reader.String("name", ""), "a");
  EXPECT_EQ(reader.RequiredString("name"), "a");
  EXPECT_TRUE(reader.Bool("on", false));
  EXPECT_EQ(reader.Int("n", 0, -5, 5), -3);
  EXPECT_THAT(reader.Strings("list", {}), ElementsAre("x", "y"));
  EXPECT_EQ(reader.Bytes("memory.limit", 0, 0, UINT64_MAX), uint64_t{64} << 20);
  EXPECT_EQ(reader.Bytes("memory.raw", 0, 0, UINT64_MAX), 4096u);
  EXPECT_EQ(reader.DurationUs("memory.delta", 0, 0, INT64_MAX), 50'000);
  EXPECT_TRUE(reader.Has("memory"));
  EXPECT_FALSE(reader.Has("memory.none"));
  EXPECT_EQ(reader.Finish(), absl::OkStatus());
}

TEST(ConfigReaderTest, MissingKeysGiveTheirDefaults) {
  ConfigReader reader = Read("");
  EXPECT_EQ(reader.String("a", "d"), "d");
  EXPECT_TRUE(reader.Bool("b", true));
  EXPECT_EQ(reader.Int("c", 99, 0, 5), 99) << "a default may lie outside the range";
  EXPECT_EQ(reader.Bytes("e", 7, 0, 9), 7u);
  EXPECT_EQ(reader.DurationUs("f", 7, 0, 9), 7);
  EXPECT_THAT(reader.Strings("g", {"z"}), ElementsAre("z"));
  EXPECT_EQ(reader.Finish(), absl::OkStatus());
}

TEST(ConfigReaderTest, WrongTypesAreNamedWithTheirLine) {
  ConfigReader reader = Read(
      "a = 1\nb = 'x'\nc = 1.5\ne = true\nf = 50\ng = ['x', 1]\ni = -1\nj = 'x'\n");
  EXPECT_EQ(reader.String("a", "d"), "d");
  EXPECT_TRUE(reader.Bool("b", true));
  EXPECT_EQ(reader.Int("c", 4, 0, 5), 4);
  EXPECT_EQ(reader.Bytes("e", 7, 0, 9), 7u);
  EXPECT_EQ(reader.DurationUs("f", 7, 0, 9), 7);
  EXPECT_THAT(reader.Strings("g", {"z"}), ElementsAre("z"));
  EXPECT_EQ(reader.Bytes("i", 7, 0, 9), 7u);
  EXPECT_EQ(reader.Bytes("j", 7, 0, 9), 7u);
  EXPECT_EQ(ErrorOf(reader),
            "salius.toml:1: a: expected a string\n"
            "salius.toml:2: b: expected true or false\n"
            "salius.toml:3: c: expected an integer\n"
            "salius.toml:4: e: expected a size, as in \"64MiB\"\n"
            "salius.toml:5: f: expected a duration with its unit, as in \"50ms\"\n"
            "salius.toml:6: g: expected a list of strings\n"
            "salius.toml:7: i: expected a size, as in \"64MiB\"\n"
            "salius.toml:8: j: size \"x\": expected a number and a unit, as in \"64MiB\"");
}

TEST(ConfigReaderTest, ValuesOutOfRangeAreRefused) {
  ConfigReader reader = Read("f = 9\nm = \"1KiB\"\nd = \"1h\"\nbad = \"1x\"\n");
  EXPECT_EQ(reader.Int("f", 1, 1, 8), 1);
  EXPECT_EQ(reader.Bytes("m", 5000, 4096, 1 << 20), 5000u);
  EXPECT_EQ(reader.DurationUs("d", 10, 0, 1000), 10);
  EXPECT_EQ(reader.DurationUs("bad", 10, 0, 1000), 10);
  const std::string error = ErrorOf(reader);
  EXPECT_THAT(error, HasSubstr("salius.toml:1: f: must be from 1 to 8"));
  EXPECT_THAT(error, HasSubstr("salius.toml:2: m: must be from 4096 to 1048576 bytes"));
  EXPECT_THAT(error, HasSubstr("salius.toml:3: d: must be from 0 to 1000 us"));
  EXPECT_THAT(error, HasSubstr("salius.toml:4: bad: duration \"1x\""));
}

TEST(ConfigReaderTest, RequiredKeysAreRequired) {
  ConfigReader reader = Read("empty = ''\nn = 1\n");
  reader.RequiredString("absent");
  reader.RequiredString("empty");
  reader.RequiredString("n");
  const std::string error = ErrorOf(reader);
  EXPECT_THAT(error, HasSubstr("salius.toml: absent: is required"));
  EXPECT_THAT(error, HasSubstr("salius.toml:1: empty: must not be empty"));
  EXPECT_THAT(error, HasSubstr("salius.toml:2: n: expected a string"));
}

TEST(ConfigReaderTest, UnknownKeysAreRefusedWithTheNearestKnown) {
  ConfigReader reader = Read("listn = 'x'\nfoo = 1\n[memory]\nlimits = 1\n");
  reader.String("listen", "");
  reader.Bytes("memory.limit", 0, 0, 1);
  const std::string error = ErrorOf(reader);
  EXPECT_THAT(error, HasSubstr("salius.toml:1: unknown key listn (did you mean listen?)"));
  EXPECT_THAT(error, HasSubstr("salius.toml:2: unknown key foo\n"));
  EXPECT_THAT(error,
              HasSubstr("salius.toml:4: unknown key memory.limits (did you mean memory.limit?)"));
}

TEST(ConfigReaderTest, TablesInAnArrayAreUnknown) {
  ConfigReader reader = Read("[[replicas]]\nhost = 'a'\n");
  reader.Strings("replica", {});
  EXPECT_THAT(ErrorOf(reader), HasSubstr("unknown key replicas (did you mean replica?)"));
}

TEST(ConfigReaderTest, CallersErrorsJoinTheReport) {
  ConfigReader reader = Read("\nlisten = 'x'\n");
  reader.String("listen", "");
  reader.AddError("listen", "no such host");
  EXPECT_EQ(ErrorOf(reader), "salius.toml:2: listen: no such host");
}

TEST(ConfigReaderTest, BadTomlIsRefusedWithItsLine) {
  const absl::Status status = ConfigReader::Parse("a = 1\nb = = 2\n", "x.toml").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("x.toml:2: "));
}

TEST(ConfigReaderTest, BytesThatAreNotPrintableAsciiAreRefusedWithTheirLine) {
  for (const std::string bad : {"a = 1\nb = \xcf\xa7", "a = 1\nb\x01 = 2", "a = 1\n\xef\xbb\xbf"}) {
    const auto reader = ConfigReader::Parse(bad, "f");
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(reader.status().message()), HasSubstr("f:2: a byte"));
  }
}

TEST(ConfigReaderTest, ReadsAFileAndNamesIt) {
  const std::string path = ::testing::TempDir() + "/config_test.toml";
  std::ofstream(path) << "a = 1\nb = 2\n";
  auto reader = ConfigReader::ParseFile(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->Int("a", 0, 0, 9), 1);
  EXPECT_THAT(ErrorOf(*reader), HasSubstr(path + ":2: unknown key b"));
  EXPECT_EQ(ConfigReader::ParseFile(path + ".none").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace salius
