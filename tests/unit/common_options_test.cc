
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "common/options.h"

namespace salius {
namespace {

struct Values {
  bool fast = false;
  std::string name = "none";
  std::vector<std::string> list;
  uint64_t number = 7, bytes = 0, micros = 0, millis = 0;
};

Options MakeOptions(Values& values) {
  Options options("salius try", "THING", "Tries a thing.");
  options.Switch("fast", &values.fast, "be fast");
  options.Text("name", "NAME", &values.name, "a name");
  options.List("list", "A,B", &values.list, "several");
  options.Number("number", "N", &values.number, 1, 9, "one digit");
  options.Bytes("bytes", "BYTES", &values.bytes, "a size");
  options.Micros("micros", "TIME", &values.micros, "a short time");
  options.Millis("millis", "TIME", &values.millis, "a time");
  options.Note("The end.");
  return options;
}

absl::Status ParseWords(Values& values, const std::vector<std::string>& words) {
  return MakeOptions(values).Parse(words, 0, 1);
}

// Returns the message with which these words are refused; empty when they are taken.
std::string Refusal(const std::vector<std::string>& words) {
  Values values;
  const absl::Status status = ParseWords(values, words);
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(OptionsTest, EveryKindIsRead) {
  Values values;
  Options options = MakeOptions(values);
  ASSERT_TRUE(options
                  .Parse(std::vector<std::string>{"--fast", "--name=x=y", "--list", "a,b", "place",
                                                  "--number", "9", "--bytes", "64KiB", "--micros",
                                                  "50ms", "--millis=30s"},
                         0, 1)
                  .ok());
  EXPECT_TRUE(values.fast);
  EXPECT_EQ(values.name, "x=y");
  EXPECT_EQ(values.list, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(values.number, 9);
  EXPECT_EQ(values.bytes, 65536);
  EXPECT_EQ(values.micros, 50000);
  EXPECT_EQ(values.millis, 30000);
  EXPECT_EQ(options.places(), std::vector<std::string>{"place"});
  EXPECT_TRUE(options.Given("fast"));
  EXPECT_FALSE(options.Given("nothing"));
}

TEST(OptionsTest, OmittedOptionsKeepTheirDefaults) {
  Values values;
  Options options = MakeOptions(values);
  ASSERT_TRUE(options.Parse({}, 0, 0).ok());
  EXPECT_EQ(values.number, 7);
  EXPECT_EQ(values.name, "none");
  EXPECT_FALSE(options.Given("number"));
}

TEST(OptionsTest, UnknownOptionIsRefusedByName) {
  EXPECT_EQ(Refusal({"--slow"}),
            "The following argument was not expected: --slow (see salius try --help)");
  EXPECT_NE(Refusal({"-x"}).find("-x"), std::string::npos);
}

TEST(OptionsTest, OptionGivenTwiceIsRefused) {
  EXPECT_NE(Refusal({"--number", "1", "--number", "2"}).find("--number: At Most 1 required"),
            std::string::npos);
}

TEST(OptionsTest, SwitchWithAValueIsRefused) {
  EXPECT_NE(Refusal({"--fast=yes"}).find("fast was given"), std::string::npos);
}

TEST(OptionsTest, MissingValueIsRefused) {
  EXPECT_NE(Refusal({"--name"}).find("--name: 1 required NAME missing"), std::string::npos);
}

TEST(OptionsTest, NumberOutOfRangeSaysTheRange) {
  for (const char* const text : {"0", "10", "-1", "x", ""}) {
    EXPECT_NE(Refusal({"--number", text}).find("from 1 to 9"), std::string::npos) << text;
  }
}

TEST(OptionsTest, BadBytesAndTimesAreRefused) {
  EXPECT_NE(Refusal({"--bytes", "many"}), "");
  EXPECT_NE(Refusal({"--micros", "50"}), "");
  EXPECT_NE(Refusal({"--millis", "1us"}).find("at least 1ms"), std::string::npos);
}

TEST(OptionsTest, EmptyElementOfAListIsRefused) {
  EXPECT_NE(Refusal({"--list", "a,,b"}).find("empty element"), std::string::npos);
}

TEST(OptionsTest, TooManyAndTooFewArgumentsAreRefused) {
  EXPECT_NE(Refusal({"one", "two"}).find("not expected: two"), std::string::npos);
  Values values;
  const absl::Status status = MakeOptions(values).Parse({}, 1, 1);
  EXPECT_NE(status.message().find("missing argument: THING"), absl::string_view::npos);
}

TEST(OptionsTest, AfterTwoDashesEverythingIsAnArgument) {
  Values values;
  Options options = MakeOptions(values);
  ASSERT_TRUE(options.Parse(std::vector<std::string>{"--", "--fast"}, 0, 1).ok());
  EXPECT_FALSE(values.fast);
  EXPECT_EQ(options.places()[0], "--fast");
}

TEST(OptionsTest, HelpNamesEveryOptionAndNeedsNoArguments) {
  Values values;
  Options options = MakeOptions(values);
  ASSERT_TRUE(options.Parse(std::vector<std::string>{"--help"}, 1, 1).ok());
  ASSERT_TRUE(options.answer().has_value());
  const std::string& help = *options.answer();
  for (const char* const part : {"usage: salius try", "THING", "--fast", "--name NAME",
                                 "--list A,B", "--number N", "--help", "The end."}) {
    EXPECT_NE(help.find(part), std::string::npos) << part;
  }
}

TEST(OptionsTest, VersionIsPrinted) {
  Values values;
  Options options = MakeOptions(values);
  options.Version("try 1");
  ASSERT_TRUE(options.Parse(std::vector<std::string>{"-V"}, 1, 1).ok());
  EXPECT_EQ(options.answer(), "try 1\n");
}

TEST(OptionsTest, ShortOptionsMayBeJoined) {
  Options options("salius try", "", "Tries.");
  bool fast = false, loud = false;
  std::string list;
  options.Switch("f,fast", &fast, "");
  options.Switch("l,loud", &loud, "");
  options.Text("o,options", "LIST", &list, "");
  ASSERT_TRUE(options.Parse(std::vector<std::string>{"-fl", "-oa=1,b", "x"}, 1, 1).ok());
  EXPECT_TRUE(fast && loud);
  EXPECT_EQ(list, "a=1,b");
  EXPECT_EQ(options.places(), std::vector<std::string>{"x"});
}

TEST(OptionsTest, OneLetterAloneIsALongName) {
  Options options("salius try", "", "Tries.");
  uint64_t k = 2;
  options.Number("k", "N", &k, 1, 9, "");
  ASSERT_TRUE(options.Parse(std::vector<std::string>{"--k", "3"}, 0, 0).ok());
  EXPECT_EQ(k, 3u);
  EXPECT_EQ(options.Parse(std::vector<std::string>{"-k", "3"}, 0, 0).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(OptionsTest, RepeatedOptionKeepsEachValue) {
  Options options("salius try", "A B", "Tries.");
  std::vector<std::string> lists;
  bool quiet = false;
  options.Repeated("o,options", "LIST", &lists, "a list");
  options.Switch("q,", &quiet, "quiet");
  ASSERT_TRUE(options
                  .Parse(std::vector<std::string>{"-o", "a,b", "x", "-oc=1", "-o", "", "-q", "y"},
                         2, 2)
                  .ok());
  EXPECT_EQ(lists, (std::vector<std::string>{"a,b", "c=1", ""}));
  EXPECT_EQ(options.places(), (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(quiet && options.Given("q"));
  EXPECT_NE(options.Help().find("-o,--options LIST "), std::string::npos) << options.Help();
  EXPECT_EQ(options.Parse(std::vector<std::string>{"--q", "x", "y"}, 2, 2).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(OptionsTest, ChoiceIsNamedInTheHelpAndInErrors) {
  Options options("salius try", "", "Tries.");
  std::string level = "warn";
  options.LogLevel(&level);
  EXPECT_NE(options.Help().find("--log-level debug|info|warn|error|off"), std::string::npos);
  EXPECT_EQ(options.Parse(std::vector<std::string>{"--log-level", "loud"}, 0, 0).message(),
            "--log-level \"loud\": allowed are debug, info, warn, error, off (see salius try --help)");
}

TEST(OptionsTest, NameWithUnderscoresIsRefusedWithTheRightOne) {
  Options options("salius try", "", "Tries.");
  uint64_t size = 0;
  options.Bytes("log-max", "BYTES", &size, "a size");
  EXPECT_EQ(options.Parse(std::vector<std::string>{"--log_max=1"}, 0, 0).message(),
            "The following argument was not expected: --log_max=1 (it is --log-max) (see salius try "
            "--help)");
}

TEST(OptionsTest, OptionalTextTellsNoneFromEmpty) {
  const auto parsed = [](const std::vector<std::string>& words) {
    std::optional<std::string> keys;
    Options options("salius try", "", "");
    options.Text("keys", "FILE", &keys, "");
    EXPECT_TRUE(options.Parse(words, 0, 0).ok());
    return keys;
  };
  EXPECT_EQ(parsed({}), std::nullopt);
  EXPECT_EQ(parsed({"--keys", ""}), "");
  EXPECT_EQ(parsed({"--keys=/k"}), "/k");
}

TEST(OptionsTest, EmptyValueAfterEqualsSignIsAValue) {
  Values values;
  ASSERT_TRUE(ParseWords(values, {"--name=", "place"}).ok());
  EXPECT_EQ(values.name, "");
}

// Parses a file with this text, and words after it.
absl::Status ParseFile(Values& values, const std::string& text, std::vector<std::string> words) {
  const std::string path = ::testing::TempDir() + "/options_test.toml";
  std::ofstream(path) << text;
  Options options = MakeOptions(values);
  uint64_t small_step = 0;
  options.Micros("small-step", "TIME", &small_step, "a time");
  options.Config("a file");
  words.insert(words.end(), {"--config", path});
  return options.Parse(words, 0, 0);
}

TEST(OptionsTest, FileHasTheSameNamesAndTheCommandLineWins) {
  Values values;
  ASSERT_TRUE(ParseFile(values,
                        "fast = true\nname = \"file\"\nbytes = \"1MiB\"\nnumber = 3\n"
                        "small_step = \"5ms\"\n",
                        {"--name", "line"})
                  .ok());
  EXPECT_TRUE(values.fast);
  EXPECT_EQ(values.name, "line");
  EXPECT_EQ(values.bytes, uint64_t{1} << 20);
  EXPECT_EQ(values.number, 3);
}

TEST(OptionsTest, WrongKeysOfTheFileAreNamed) {
  const auto refusal = [](const std::string& text) {
    Values values;
    return std::string(ParseFile(values, text, {}).message());
  };
  EXPECT_NE(refusal("number = 12\n").find("options_test.toml:1: number: must be a whole number"),
            std::string::npos);
  EXPECT_NE(refusal("name = 5\n").find("name: expected a string"), std::string::npos);
  EXPECT_NE(refusal("fast = \"x\"\n").find("fast"), std::string::npos);
  // A key is spelled with underscores.
  EXPECT_NE(refusal("small-step = \"5ms\"\n").find("did you mean small_step"), std::string::npos);
}

}  // namespace
}  // namespace salius
