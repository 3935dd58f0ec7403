#include "recovery/command_line.h"

#include "gtest/gtest.h"
#include "recovery/progress.h"

namespace salius::recovery {
namespace {

TEST(CommandLineTest, EverythingGiven) {
  const auto line = ParseCommandLine({"--dry-run", "--json", "--force", "--until=12", "--timeout",
                                      "1.5s", "--progress=never", "--crash-at=pinned:3", "/v"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_TRUE(line->dry_run && line->json && line->force);
  EXPECT_EQ(line->until, 12u);
  EXPECT_EQ(line->timeout_ms, 1500u);
  EXPECT_EQ(line->progress, "never");
  EXPECT_EQ(line->crash_at, RecoveryStep::kPinned);
  EXPECT_EQ(line->crash_count, 3u);
  EXPECT_EQ(line->backing, "/v");
}

TEST(CommandLineTest, ADirectoryThatLooksLikeAnOption) {
  const auto line = ParseCommandLine({"--", "-v"});
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->backing, "-v");
}

TEST(CommandLineTest, KeysThatAreNotGivenDifferFromNone) {
  EXPECT_FALSE(ParseCommandLine({"/v"})->keys.has_value()) << "those of the volume are used";
  EXPECT_EQ(ParseCommandLine({"--keys", "/k.pem", "/v"})->keys, "/k.pem");
  EXPECT_EQ(ParseCommandLine({"--keys", "", "/v"})->keys, "");
}

TEST(CommandLineTest, MistakesAreNamed) {
  for (const std::vector<std::string>& bad :
       std::vector<std::vector<std::string>>{{},
                                             {"a", "b"},
                                             {"--nope", "a"},
                                             {"--until", "x", "a"},
                                             {"--until=-1", "a"},
                                             {"a", "--until"},
                                             {"--timeout=0", "a"},
                                             {"--timeout=soon", "a"},
                                             {"--timeout=5", "a"},
                                             {"--progress=often", "a"},
                                             {"--force=yes", "a"},
                                             {"--crash-at=nowhere", "a"},
                                             {"--crash-at=pinned:0", "a"},
                                             {"--crash-at=pinned:x", "a"}}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseCommandLine(bad).status())) << bad.size();
  }
}

TEST(CommandLineTest, FormerSpellingsAreRefusedWithTheNewOne) {
  const auto refusal = [](const char* word) {
    return std::string(ParseCommandLine({word, "a"}).status().message());
  };
  EXPECT_NE(refusal("--timeout=5").find("as in \"50ms\""), std::string::npos);
  EXPECT_NE(refusal("--dry_run").find("it is --dry-run"), std::string::npos);
}

TEST(CommandLineTest, HelpAndVersionNeedNoDirectory) {
  EXPECT_NE(ParseCommandLine({"--help"})->answer->find("usage: salius-recover"), std::string::npos);
  EXPECT_EQ(ParseCommandLine({"-V"})->answer->find("salius-recover "), 0u);
  EXPECT_FALSE(ParseCommandLine({"a"})->answer.has_value());
}

TEST(CommandLineTest, StepNamesGoBothWays) {
  for (int i = 0; i < kRecoverySteps; ++i) {
    const auto step = static_cast<RecoveryStep>(i);
    EXPECT_EQ(ParseRecoveryStep(RecoveryStepName(step)), step);
  }
  EXPECT_FALSE(ParseRecoveryStep("").has_value());
}

TEST(ExitCodeTest, OutcomesHaveExitCodes) {
  EXPECT_EQ(ExitCodeOf(RecoveryOutcome::kClean), 0);
  EXPECT_EQ(ExitCodeOf(RecoveryOutcome::kRecovered), 0);
  EXPECT_EQ(ExitCodeOf(RecoveryOutcome::kDryRun), 0);
  EXPECT_EQ(ExitCodeOf(RecoveryOutcome::kInterrupted), 1);
  EXPECT_EQ(ExitCodeOf(RecoveryOutcome::kBadRequest), 2);
  EXPECT_EQ(ExitCodeOf(RecoveryOutcome::kNotEnough), 4);
  EXPECT_EQ(ExitCodeOf(RecoveryOutcome::kDataLoss), 5);
  EXPECT_EQ(ExitCodeOf(RecoveryOutcome::kFailed), 6);
  EXPECT_EQ(ExitCodeOf(RecoveryOutcome::kFenced), 7);
  EXPECT_EQ(ExitCodeOfOpen(absl::UnavailableError("")), 3);
  EXPECT_EQ(ExitCodeOfOpen(absl::NotFoundError("")), 8);
  EXPECT_EQ(ExitCodeOfOpen(absl::DataLossError("")), 5);
  EXPECT_EQ(ExitCodeOfOpen(absl::InternalError("")), 6);
}

TEST(ReportTest, JsonIsUtf8ForAnyFileName) {
  RecoveryReport report;
  report.missing.push_back(
      "a\"b\\\n\xff"
      "c");
  const std::string json = RecoveryReportJson(report);
  EXPECT_NE(json.find("\"a\\\"b\\\\\\n\xEF\xBF\xBD"
                      "c\""),
            std::string::npos)
      << json;
}

TEST(ReportTest, TextNamesUnaccountedRecords) {
  RecoveryReport report;
  report.outcome = RecoveryOutcome::kRecovered;
  report.unaccounted = {{5, 5}, {8, 9}};
  report.missing = {"file 7"};
  report.lost_and_found = {"x"};
  report.ballast_restored = false;
  report.same_life = true;
  report.records_skipped = 1;
  report.replicas.push_back({"host:1", true, true, true, 3, 2, "counts"});
  const std::string text = RecoveryReportText(report);
  for (const char* part :
       {"5, 8-9", "file 7", ".salius/lost/x", "WARNING", "host:1", "same life"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(ReportTest, NamesOfFilesDoNotActOnTheTerminal) {
  RecoveryReport report;
  report.outcome = RecoveryOutcome::kFailed;
  report.explanation = "\"a\x1b[2Jb\nvolume x: clean\": is immutable";
  const std::string text = RecoveryReportText(report);
  EXPECT_NE(text.find("\"a?[2Jb?volume x: clean\": is immutable"), std::string::npos) << text;
}

TEST(ProgressTest, LinesSayHowFar) {
  EXPECT_EQ(ProgressLine({"sync", 0, 0, ""}), "sync    ");
  EXPECT_EQ(ProgressLine({"locate", 7, 0, "objects"}), "locate   7 objects");
  const std::string line = ProgressLine({"pin", 5 << 20, 10 << 20, "bytes"});
  EXPECT_NE(line.find(" 50% 5 of 10 MiB"), std::string::npos) << line;
  EXPECT_NE(ProgressLine({"fence", 9, 3, "replicas"}).find("100%"), std::string::npos);
}

}  // namespace
}  // namespace salius::recovery
