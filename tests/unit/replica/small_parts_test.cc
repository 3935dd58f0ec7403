// The age tracker, the rate limiter and the options.
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "replica/age_tracker.h"
#include "replica/options.h"
#include "replica/rate_limiter.h"

namespace salius {
namespace {

using ::testing::HasSubstr;

TEST(AgeTrackerTest, AgeIsThatOfTheOldestUntrimmedSample) {
  AgeTracker age(10);
  EXPECT_EQ(age.AgeNs(100), 0);
  age.Note(100, 5);
  age.Note(105, 6);  // too close to the sample before
  age.Note(120, 8);
  EXPECT_EQ(age.AgeNs(150), 50);
  age.TrimTo(4);
  EXPECT_EQ(age.AgeNs(150), 50);
  age.TrimTo(5);
  EXPECT_EQ(age.AgeNs(150), 30);
  age.TrimTo(8);
  EXPECT_EQ(age.AgeNs(150), 0);
}

TEST(AgeTrackerTest, SameHighestIsNoNewSample) {
  AgeTracker age(1);
  age.Note(100, 5);
  age.TrimTo(5);
  age.Note(200, 5);
  EXPECT_EQ(age.AgeNs(300), 0);
}

TEST(AgeTrackerTest, SamplesAreBoundedAndTheOldestStays) {
  AgeTracker age(1);
  for (int i = 0; i < 100000; ++i) age.Note(1000 + 2 * i, static_cast<Seq>(i) + 1);
  EXPECT_LE(age.sample_count(), AgeTracker::kMaxSamples);
  EXPECT_EQ(age.AgeNs(1000000), 1000000 - 1000);
}

TEST(RateLimiterTest, OnePerSourceAndInterval) {
  RateLimiter limiter(10, 100);
  EXPECT_TRUE(limiter.Allow(0, "a"));
  EXPECT_TRUE(limiter.Allow(0, "b"));
  EXPECT_FALSE(limiter.Allow(9, "a"));
  EXPECT_TRUE(limiter.Allow(10, "a"));
}

TEST(RateLimiterTest, SourcesAreBounded) {
  RateLimiter limiter(10, 100);
  for (int i = 0; i < 1000; ++i) limiter.Allow(0, std::to_string(i));
  EXPECT_LE(limiter.sources(), 100u);
}

absl::StatusOr<ReplicaOptions> Parse(const std::vector<std::string>& arguments) {
  return ParseReplicaOptions(arguments);
}

TEST(OptionsTest, DefaultsAreThoseOfTheHelp) {
  const ReplicaOptions options = Parse({}).value();
  EXPECT_EQ(options.listen, (HostPort{"127.0.0.1", 7400}));
  EXPECT_EQ(options.memory_bytes, uint64_t{1} << 30);
  EXPECT_EQ(options.shm_dir, "/dev/shm/salius-7400");
  EXPECT_EQ(options.state_dir, "/var/lib/salius/replica-7400");
  EXPECT_EQ(options.peer_share_percent, 75u);
  EXPECT_EQ(options.abandon_after_us, 0);
  EXPECT_FALSE(options.insecure);
  EXPECT_FALSE(options.no_mlock);
  for (const char* const text : {"127.0.0.1:7400", "1GiB", "/dev/shm/salius-PORT", "never",
                                "/var/lib/salius/replica-PORT", "default 75"}) {
    EXPECT_THAT(Parse({"--help"})->answer.value(), HasSubstr(text));
  }
}

TEST(OptionsTest, ValuesFollowAnEqualsSignOrStandAlone) {
  const ReplicaOptions options =
      Parse({"--listen=[::1]:1", "--memory", "64MiB", "--shm-dir", "/x", "--metrics=127.0.0.1:9400",
             "--multicast-interface", "eth1", "--insecure", "--no-mlock", "--abandon-after=72h",
             "--log-level", "debug", "--state-dir", "/y", "--peer-share=100"})
          .value();
  EXPECT_EQ(options.listen, (HostPort{"::1", 1}));
  EXPECT_EQ(options.memory_bytes, uint64_t{64} << 20);
  EXPECT_EQ(options.shm_dir, "/x");
  EXPECT_EQ(options.state_dir, "/y");
  EXPECT_EQ(options.peer_share_percent, 100u);
  EXPECT_EQ(options.metrics, "127.0.0.1:9400");
  EXPECT_EQ(options.multicast_interface, "eth1");
  EXPECT_TRUE(options.insecure);
  EXPECT_TRUE(options.no_mlock);
  EXPECT_EQ(options.abandon_after_us, int64_t{72} * 3600 * 1000000);
  EXPECT_EQ(options.log_level, "debug");
}

TEST(OptionsTest, ShmDirFollowsThePort) {
  EXPECT_EQ(Parse({"--listen", "127.0.0.1:7411"})->shm_dir, "/dev/shm/salius-7411");
}

TEST(OptionsTest, WrongArgumentsAreNamed) {
  const std::vector<std::vector<std::string>> wrong = {{"--memroy", "1GiB"},
                                                       {"stray"},
                                                       {"--memory"},
                                                       {"--memory", "0"},
                                                       {"--memory", "lots"},
                                                       {"--memory=5TiB"},
                                                       {"--insecure=yes"},
                                                       {"--abandon-after", "5s"},
                                                       {"--log-level", "x"},
                                                       {"--listen", ":x"},
                                                       {"--shm-dir", ""},
                                                       {"--state-dir", ""},
                                                       {"--peer-share", "0"},
                                                       {"--peer-share", "101"},
                                                       {"--metrics", "a:b"},
                                                       {"-x"},
                                                       {"--config", "/no"}};
  for (const auto& arguments : wrong) {
    const auto options = Parse(arguments);
    ASSERT_FALSE(options.ok()) << arguments[0];
    if (arguments[0] == "--config") continue;
    EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string name =
        arguments[0] == "--insecure=yes" ? "insecure" : arguments[0].substr(0, arguments[0].find('='));
    EXPECT_THAT(std::string(options.status().message()), HasSubstr(name));
  }
}

TEST(OptionsTest, HelpAndVersionWinOverTheRest) {
  EXPECT_TRUE(Parse({"--memory", "1GiB", "--help"})->answer.has_value());
  EXPECT_TRUE(Parse({"--version"})->answer.has_value());
}

std::string WriteConfig(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/replica.toml";
  std::ofstream(path) << text;
  return path;
}

TEST(OptionsTest, FileHasTheSameNamesAndTheCommandLineWins) {
  const std::string path = WriteConfig(
      "listen = \"127.0.0.1:7500\"\nmemory = \"64MiB\"\ninsecure = true\nlog_level = \"warn\"\n"
      "abandon_after = \"never\"\n");
  const auto options = Parse({"--log-level=error", "--config", path});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->listen.port, 7500);
  EXPECT_EQ(options->memory_bytes, uint64_t{64} << 20);
  EXPECT_TRUE(options->insecure);
  EXPECT_EQ(options->log_level, "error");
}

TEST(OptionsTest, SampleHasTheDefaults) {
  const auto sample = Parse({"--config", "deploy/replica.toml.sample"});
  ASSERT_TRUE(sample.ok()) << sample.status();
  const ReplicaOptions defaults = Parse({}).value();
  EXPECT_EQ(sample->listen, defaults.listen);
  EXPECT_EQ(sample->memory_bytes, defaults.memory_bytes);
  EXPECT_EQ(sample->shm_dir, defaults.shm_dir);
  EXPECT_EQ(sample->state_dir, defaults.state_dir);
  EXPECT_EQ(sample->metrics, defaults.metrics);
  EXPECT_EQ(sample->multicast_interface, defaults.multicast_interface);
  EXPECT_EQ(sample->insecure, defaults.insecure);
  EXPECT_EQ(sample->no_mlock, defaults.no_mlock);
  EXPECT_EQ(sample->abandon_after_us, defaults.abandon_after_us);
  EXPECT_EQ(sample->peer_share_percent, defaults.peer_share_percent);
  EXPECT_EQ(sample->log_level, defaults.log_level);
}

TEST(OptionsTest, MemoryMayBeANumberOfBytesInTheFile) {
  EXPECT_EQ(Parse({"--config", WriteConfig("memory = 67108864\n")})->memory_bytes,
            uint64_t{64} << 20);
}

TEST(OptionsTest, KeyWithHyphensGetsTheNewSpelling) {
  const auto options = Parse({"--config", WriteConfig("shm-dir = \"/x\"\n")});
  ASSERT_FALSE(options.ok());
  EXPECT_THAT(std::string(options.status().message()), HasSubstr("did you mean shm_dir?"));
}

TEST(OptionsTest, UnknownOrWrongKeysOfTheFileAreErrors) {
  for (const char* const text : {"memroy = \"1GiB\"\n", "memory = \"1KiB\"\n", "insecure = \"x\"\n",
                                 "listen = 5\n", "no_such_key = 1\n"}) {
    const auto options = Parse({"--config", WriteConfig(text)});
    ASSERT_FALSE(options.ok()) << text;
    const std::string key = std::string(text).substr(0, std::string(text).find(' '));
    EXPECT_THAT(std::string(options.status().message()), HasSubstr(key));
  }
}

}  // namespace
}  // namespace salius
