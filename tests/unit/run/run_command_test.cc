#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/run/command_line.h"

namespace salius::run {
namespace {

std::string ErrorOf(const std::vector<std::string>& words) {
  return std::string(ParseRunCommand(words).status().message());
}

TEST(RunCommandTest, WordsAfterTheDashesAreTheCommands) {
  const absl::StatusOr<RunCommand> command =
      ParseRunCommand({"--direct", "/srv/d", "--stats", "--", "sh", "-c", "--stats --", "--"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->direct, "/srv/d");
  EXPECT_TRUE(command->stats);
  EXPECT_FALSE(command->insecure);
  EXPECT_EQ(command->key_rotation_s, 3600u);
  EXPECT_EQ(command->command, (std::vector<std::string>{"sh", "-c", "--stats --", "--"}));
}

TEST(RunCommandTest, ContractIsSyncUnlessItIsGiven) {
  EXPECT_EQ(ParseRunCommand({"--direct", "d", "--", "true"})->commit, "sync");
  const absl::StatusOr<RunCommand> command = ParseRunCommand(
      {"--direct", "d", "--commit=external", "--trigger=output", "--", "true"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->commit, "external");
  EXPECT_EQ(command->trigger, "output");
}

TEST(RunCommandTest, TriggerWithoutExternalIsRefused) {
  EXPECT_NE(ErrorOf({"--direct", "d", "--trigger=output", "--", "true"}).find("--commit=external"),
            std::string::npos);
}

TEST(RunCommandTest, MissingPartsAreNamed) {
  EXPECT_NE(ErrorOf({"--direct", "/srv/d"}).find("the command is missing"), std::string::npos);
  EXPECT_NE(ErrorOf({"--direct", "/srv/d", "--"}).find("the command is missing"),
            std::string::npos);
}

TEST(RunCommandTest, WithoutADirectVolumeTheCommandRunsAtMounts) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--", "true"}, {"--commit=external", "--", "true"}}) {
    const absl::StatusOr<RunCommand> command = ParseRunCommand(words);
    ASSERT_TRUE(command.ok()) << command.status();
    EXPECT_EQ(command->direct, "");
  }
  EXPECT_NE(ErrorOf({}).find("the command is missing"), std::string::npos);
}

TEST(RunCommandTest, OptionsOfADirectVolumeAreRefusedAtMounts) {
  for (const char* const option :
       {"--commit=sync", "--trigger=output", "--recover=auto", "--insecure", "--key-rotation=1",
        "--stats"}) {
    const std::string error = ErrorOf({option, "--", "true"});
    EXPECT_NE(error.find("needs --direct DIR"), std::string::npos) << error;
    EXPECT_NE(error.find("mount"), std::string::npos) << error;
  }
}

TEST(RunCommandTest, CommandWithoutDashesIsRefused) {
  EXPECT_FALSE(ParseRunCommand({"--direct", "/srv/d", "true"}).ok());
}

TEST(RunCommandTest, WrongValuesAreRefused) {
  EXPECT_FALSE(ParseRunCommand({"--direct", "d", "--key-rotation=604801", "--", "true"}).ok());
  EXPECT_FALSE(ParseRunCommand({"--direct", "/srv/d", "--recover", "maybe", "--", "true"}).ok());
  EXPECT_FALSE(ParseRunCommand({"--direct", "/srv/d", "--log-level", "x", "--", "true"}).ok());
  EXPECT_FALSE(ParseRunCommand({"--direct", "a", "--direct", "b", "--", "true"}).ok());
}

TEST(RunCommandTest, HelpNeedsNothingElse) {
  const absl::StatusOr<RunCommand> command = ParseRunCommand({"--help"});
  ASSERT_TRUE(command.ok()) << command.status();
  ASSERT_TRUE(command->answer.has_value());
  EXPECT_NE(command->answer->find("127 COMMAND is not found"), std::string::npos);
}

}  // namespace
}  // namespace salius::run
