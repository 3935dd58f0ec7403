#include "client/cli/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/cli/exit_code.h"

namespace salius::cli {
namespace {

struct Values {
  bool fast = false;
  std::string name = "none";
  std::vector<std::string> list;
  uint64_t number = 7, bytes = 0, micros = 0, millis = 0;
};

Options MakeOptions(Values& values) {
  Options options("try", "THING", "Tries a thing.");
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
  EXPECT_EQ(ExitCodeOf(status), kExitUsage);
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
  EXPECT_EQ(Refusal({"--slow"}), "there is no option --slow (see salius try --help)");
  EXPECT_NE(Refusal({"-x"}).find("-x"), std::string::npos);
}

TEST(OptionsTest, OptionGivenTwiceIsRefused) {
  EXPECT_NE(Refusal({"--number", "1", "--number", "2"}).find("twice"), std::string::npos);
}

TEST(OptionsTest, SwitchWithAValueIsRefused) {
  EXPECT_NE(Refusal({"--fast=yes"}).find("takes no value"), std::string::npos);
}

TEST(OptionsTest, MissingValueIsRefused) {
  EXPECT_NE(Refusal({"--name"}).find("needs a value: NAME"), std::string::npos);
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
  EXPECT_NE(Refusal({"one", "two"}).find("unexpected argument \"two\""), std::string::npos);
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
  EXPECT_TRUE(options.help_wanted());
  const std::string help = options.Help();
  for (const char* const part : {"usage: salius try", "THING", "--fast", "--name NAME",
                                 "--list A,B", "--number N", "--help", "The end."}) {
    EXPECT_NE(help.find(part), std::string::npos) << part;
  }
}

TEST(ExitCodeTest, EveryKindOfErrorHasItsOwn) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), kExitOk);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), kExitUsage);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), kExitNotFound);
  EXPECT_EQ(ExitCodeOf(absl::AlreadyExistsError("")), kExitExists);
  EXPECT_EQ(ExitCodeOf(absl::FailedPreconditionError("")), kExitUnsuitable);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("")), kExitNoSpace);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), kExitUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), kExitUnreachable);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("")), kExitDamaged);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), kExitPermission);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), kExitFailed);
}

}  // namespace
}  // namespace salius::cli
