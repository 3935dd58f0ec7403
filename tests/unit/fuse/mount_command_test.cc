// Command lines of salius-mount and of mount(8)'s helper.
#include "client/mount/mount_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/mount/launcher.h"

namespace salius {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Action = MountCommand::Action;

TEST(SaliusMountTest, PlacesOptionsAndForegroundInAnyOrder) {
  const absl::StatusOr<MountCommand> command =
      ParseSaliusMount({"-oacks=1", "/b", "-f", "/m", "-o", "ro,threads=2"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->backing, "/b");
  EXPECT_EQ(command->mountpoint, "/m");
  EXPECT_TRUE(command->foreground);
  EXPECT_EQ(command->options.acks, 1u);
  EXPECT_EQ(command->options.threads, 2);
}

TEST(SaliusMountTest, PlacesAfterADoubleDashMayBeginWithADash) {
  const absl::StatusOr<MountCommand> command = ParseSaliusMount({"--", "-b", "-m"});
  ASSERT_TRUE(command.ok());
  EXPECT_EQ(command->backing, "-b");
}

TEST(SaliusMountTest, HelpAndVersionNeedNoPlaces) {
  const std::string help = *ParseSaliusMount({"--help"})->answer;
  EXPECT_THAT(help, HasSubstr("-f,--foreground"));
  EXPECT_THAT(help, HasSubstr("recover=auto|refuse"));
  EXPECT_THAT(*ParseSaliusMount({"-V"})->answer, StartsWith("salius-mount "));
  EXPECT_THAT(*ParseMountHelper({"-V"})->answer, StartsWith("mount.salius "));
  EXPECT_FALSE(ParseSaliusMount({"/b", "/m"})->answer.has_value());
}

TEST(SaliusMountTest, WrongUsageIsRefusedWithTheUsage) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"/b"},
                                                {"/b", "/m", "/x"},
                                                {"-x", "/b", "/m"},
                                                {"/b", "/m", "--log_max=1"},
                                                {"/b", "/m", "-o"}}) {
    const absl::StatusOr<MountCommand> command = ParseSaliusMount(words);
    ASSERT_EQ(command.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(command.status().message()), HasSubstr("usage:"));
    EXPECT_EQ(ExitCodeOf(command.status()), kExitUsage);
  }
}

TEST(MountHelperTest, TakesArgumentsOfMount) {
  const absl::StatusOr<MountCommand> command =
      ParseMountHelper({"/b", "/m", "-n", "-v", "-s", "-t", "salius", "-o", "rw,acks=1"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(command->action, Action::kMount);
  EXPECT_TRUE(command->verbose);
  EXPECT_FALSE(command->foreground);
  EXPECT_EQ(command->options.acks, 1u);
}

TEST(MountHelperTest, FIsFakeAndFlagsMayBeJoined) {
  EXPECT_EQ(ParseMountHelper({"/b", "/m", "-fnv"})->action, Action::kFake);
}

TEST(MountHelperTest, NamespaceAndUnknownFlagsAreRefused) {
  EXPECT_THAT(std::string(ParseMountHelper({"/b", "/m", "-N", "3"}).status().message()),
              HasSubstr("namespace"));
  EXPECT_FALSE(ParseMountHelper({"/b", "/m", "-q"}).ok());
}

TEST(MountHelperTest, SloppyDoesNotHideAnUnknownOption) {
  EXPECT_FALSE(ParseMountHelper({"/b", "/m", "-s", "-o", "nonsense"}).ok());
}

TEST(ExitCodeTest, TellsUsageFromFailure) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::UnimplementedError("x")), kExitUsage);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("x")), kExitFailure);
}

}  // namespace
}  // namespace salius
