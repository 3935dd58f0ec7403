// volume.toml: its contents, and that every refusal names the value.
#include "storage/volume_config.h"

#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "common/limits.h"
#include "gtest/gtest.h"

namespace salius {
namespace {

using Code = absl::StatusCode;

VolumeConfig GoodConfig() {
  VolumeConfig config = DefaultVolumeConfig();
  config.replicas = {"10.0.0.1:7400", "host-b:7400", "[::1]:7401"};
  config.acks = 2;
  return config;
}

// Returns the message of the refusal; "" when the change is accepted.
std::string Refusal(const std::function<void(VolumeConfig&)>& change) {
  VolumeConfig config = GoodConfig();
  change(config);
  const absl::Status status = ValidateVolumeConfig(config);
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status;
  return std::string(status.message());
}

testing::AssertionResult Says(const std::string& message, const std::string& part) {
  if (message.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << message << "\" does not say \"" << part << "\"";
}

TEST(VolumeConfigTest, DefaultsAreValidAndNew) {
  const VolumeConfig config = DefaultVolumeConfig();
  EXPECT_TRUE(ValidateVolumeConfig(config).ok());
  EXPECT_EQ(config.acks, 1u);
  EXPECT_TRUE(config.replicas.empty());
  EXPECT_NE(config.volume, DefaultVolumeConfig().volume);
}

TEST(VolumeConfigTest, AcksMustBeBetweenOneAndTheNumberOfReplicas) {
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.acks = 0; }), "acks = 0, allowed is 1 to 3"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.acks = 4; }), "acks = 4, allowed is 1 to 3"));
  EXPECT_EQ(Refusal([](VolumeConfig& c) { c.acks = 3; }), "");
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.replicas.clear(); }), "acks = 2"));
}

TEST(VolumeConfigTest, ReplicasMustBeDifferentAddressesWithPorts) {
  const auto with = [](const std::string& address) {
    return Refusal([&](VolumeConfig& c) { c.replicas.push_back(address); });
  };
  EXPECT_EQ(with("10.0.0.2:7400"), "");
  EXPECT_TRUE(Says(with("10.0.0.1:7400"), "10.0.0.1:7400 is named twice"));
  EXPECT_TRUE(Says(with("10.0.0.9"), "has no port"));
  EXPECT_TRUE(Says(with("10.0.0.9:x"), "not \"host:port\""));
  EXPECT_TRUE(Says(with("10.0.0.9:70000"), "not \"host:port\""));
  EXPECT_TRUE(Says(with(""), "not \"host:port\""));
  EXPECT_TRUE(Says(with(std::string(201, 'h') + ":1"), "longer than 200"));
  // A file with these addresses would be refused when it is read again.
  for (const char* address : {"h\xc3\xb6st:7400", "[\t::1]:7400", "a b:7400", "h\x7f:7400"}) {
    EXPECT_TRUE(Says(with(address), "not printable ASCII")) << address;
  }
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) {
                     for (int i = 0; i < 6; ++i) {
                       c.replicas.push_back("10.0.1." + std::to_string(i) + ":7400");
                     }
                   }),
                   "9 replicas, at most 8"));
}

TEST(VolumeConfigTest, TimesMustMakeSense) {
  EXPECT_TRUE(
      Says(Refusal([](VolumeConfig& c) { c.delta_us = 0; }), "delta = 0s, allowed is 1ms to 1m"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.delta_us = 5; }), "a busy host's scheduling"));
  EXPECT_EQ(Refusal([](VolumeConfig& c) { c.delta_us = 1000; }), "");
  EXPECT_TRUE(
      Says(Refusal([](VolumeConfig& c) { c.delta_us = 60'000'001; }), "delta = 60000001us"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.tau_ms = 0; }), "tau = 0s"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.tau_ms = 86'400'001; }), "tau = 86400001ms"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.k = 0; }), "k = 0"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.k = 1001; }), "k = 1001"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.tau_ms = 50; }), "k * tau"));
}

TEST(VolumeConfigTest, SizesMustMakeSense) {
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.log_max_bytes = 1000; }),
                   "log_max = 1000, allowed is 256KiB"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.log_max_bytes = uint64_t{1} << 40; }),
                   "log_max = 1TiB"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.stable_log_bytes = c.log_max_bytes; }),
                   "stable_log = 64MiB"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.stable_log_bytes += 1; }), "multiple of 4096"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.bulk_limit_bytes = 0; }), "bulk_limit = 0"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.ballast_bytes = uint64_t{1} << 41; }),
                   "ballast = 2TiB"));
  EXPECT_EQ(Refusal([](VolumeConfig& c) { c.ballast_bytes = 0; }), "");
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.datagram_bytes = 511; }),
                   "datagram = 511, allowed is 512"));
  EXPECT_EQ(Refusal([](VolumeConfig& c) { c.datagram_bytes = 512; }), "");
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.datagram_bytes = 65508; }), "datagram = 65508"));
  EXPECT_EQ(Refusal([](VolumeConfig& c) { c.datagram_bytes = 1472; }), "");
}

TEST(VolumeConfigTest, AReplicaWithoutAPortHasTheDefaultOne) {
  VolumeConfig config;
  config.replicas = {"10.0.0.9", "a:7411", "::1", "10.0.0.9:x"};
  NormalizeReplicas(&config);
  EXPECT_EQ(config.replicas,
            (std::vector<std::string>{"10.0.0.9:7400", "a:7411", "[::1]:7400", "10.0.0.9:x"}));
}

TEST(VolumeConfigTest, MulticastMustBeAGroupWithAPort) {
  const auto group = [](const std::string& text) {
    return Refusal([&](VolumeConfig& c) { c.multicast = text; });
  };
  EXPECT_EQ(group("239.1.2.3:7400"), "");
  EXPECT_EQ(group("[ff02::1234]:7400"), "");
  EXPECT_TRUE(Says(group("10.0.0.1:7400"), "not a multicast group"));
  EXPECT_TRUE(Says(group("group:7400"), "not a multicast group"));
  EXPECT_TRUE(Says(group("239.1.2.3"), "has no port"));
  EXPECT_TRUE(Says(group("239.1.2.3:x"), "not \"host:port\""));
}

TEST(VolumeConfigTest, VolumeIdIsNeeded) {
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.volume = VolumeId(); }), "no volume id"));
}

TEST(VolumeConfigTest, TomlRoundTrips) {
  VolumeConfig config = GoodConfig();
  config.multicast = "239.1.2.3:7400";
  config.datagram_bytes = 8972;
  config.delta_us = 1234;
  config.tau_ms = 777;
  config.k = 3;
  config.ballast_bytes = 0;
  config.names = NameMode::kAsync;
  const auto read = VolumeConfigFromToml(VolumeConfigToToml(config), "volume.toml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(VolumeConfigToToml(*read), VolumeConfigToToml(config));
  EXPECT_EQ(read->volume, config.volume);
  EXPECT_EQ(read->replicas, config.replicas);
  EXPECT_EQ(read->acks, 2u);
  EXPECT_EQ(read->delta_us, 1234u);
  EXPECT_EQ(read->tau_ms, 777u);
  EXPECT_EQ(read->k, 3u);
  EXPECT_EQ(read->datagram_bytes, 8972u);
  EXPECT_EQ(read->multicast, "239.1.2.3:7400");
  EXPECT_EQ(read->names, NameMode::kAsync);
}

TEST(VolumeConfigTest, DirectKindRoundTripsWithoutKeysOfTheMount) {
  VolumeConfig config = DefaultVolumeConfig(VolumeKind::kDirect);
  ASSERT_TRUE(ValidateVolumeConfig(config).ok());
  const std::string text = VolumeConfigToToml(config);
  for (const char* key : {"stable_log", "ballast", "names"}) {
    EXPECT_FALSE(Says(text, std::string("\n") + key + " =")) << key;
  }
  const auto read = VolumeConfigFromToml(text, "volume.toml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->kind, VolumeKind::kDirect);
  EXPECT_EQ(read->stable_log_bytes, 0u);
  EXPECT_EQ(VolumeConfigToToml(*read), text);
  for (const char* line : {"stable_log = \"8MiB\"\n", "ballast = \"0B\"\n", "names = \"wait\"\n"}) {
    const auto refused = VolumeConfigFromToml(text + line, "volume.toml");
    EXPECT_TRUE(Says(std::string(refused.status().message()), "no meaning in a direct volume"))
        << line;
  }
  config.stable_log_bytes = 8 << 20;
  EXPECT_FALSE(ValidateVolumeConfig(config).ok());
}

TEST(VolumeConfigTest, KeysRoundTripAndAreNotWrittenWithoutAFile) {
  VolumeConfig config = GoodConfig();
  EXPECT_FALSE(Says(VolumeConfigToToml(config), "keys")) << "versions without it read the file";
  config.keys = "/etc/salius/a \"b\\c.pem";
  ASSERT_TRUE(ValidateVolumeConfig(config).ok());
  const auto read = VolumeConfigFromToml(VolumeConfigToToml(config), "volume.toml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->keys, config.keys);
  EXPECT_EQ(VolumeConfigFromToml(VolumeConfigToToml(GoodConfig()) + "keys = \"\"\n", "v")->keys, "");
}

TEST(VolumeConfigTest, PathOfTheKeysIsAbsoluteAndPrintable) {
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.keys = "client.pem"; }), "not an absolute path"));
  EXPECT_TRUE(Says(Refusal([](VolumeConfig& c) { c.keys = "/a\nb"; }), "not printable ASCII"));
}

TEST(VolumeConfigTest, MountKindIsNotWrittenAndIsTheDefault) {
  const std::string text = VolumeConfigToToml(GoodConfig());
  EXPECT_FALSE(Says(text, "kind"));
  EXPECT_EQ(VolumeConfigFromToml(text, "volume.toml")->kind, VolumeKind::kMount);
  EXPECT_EQ(VolumeConfigFromToml(text + "kind = \"mount\"\n", "v")->kind, VolumeKind::kMount);
  EXPECT_TRUE(
      Says(std::string(VolumeConfigFromToml(text + "kind = \"x\"\n", "v").status().message()),
           "must be mount or direct"));
}

TEST(VolumeConfigTest, OtherKindIsRefusedWithTheOtherProgram) {
  const VolumeConfig mount = DefaultVolumeConfig();
  const VolumeConfig direct = DefaultVolumeConfig(VolumeKind::kDirect);
  EXPECT_TRUE(CheckVolumeKind(mount, "/v", VolumeKind::kMount).ok());
  EXPECT_TRUE(CheckVolumeKind(direct, "/v", VolumeKind::kDirect).ok());
  const absl::Status mounted = CheckVolumeKind(direct, "/v", VolumeKind::kMount);
  EXPECT_EQ(mounted.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Says(std::string(mounted.message()), "salius-run --direct '/v'") ||
              Says(std::string(mounted.message()), "salius-run --direct /v"));
  const absl::Status run = CheckVolumeKind(mount, "/v", VolumeKind::kDirect);
  EXPECT_EQ(run.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(Says(std::string(run.message()), "salius-mount"));
}

constexpr char kUuid[] = "volume = \"3c0ffee0-1234-4321-8888-0123456789ab\"\n";

TEST(VolumeConfigTest, MissingKeysHaveDefaults) {
  const auto config = VolumeConfigFromToml(kUuid, "volume.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->volume.ToString(), "3c0ffee0-1234-4321-8888-0123456789ab");
  EXPECT_EQ(config->stable_log_bytes, kDefaultStableLogBytes);
  EXPECT_EQ(config->acks, 1u);
  EXPECT_EQ(config->names, kDefaultNames);
}

TEST(VolumeConfigTest, SizesAndTimesHaveUnits) {
  const auto config = VolumeConfigFromToml(std::string(kUuid) +
                                               "log_max = \"8MiB\"\nstable_log = 16777216\n"
                                               "delta = \"20ms\"\ntau = \"1.5s\"\n",
                                           "v");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->log_max_bytes, uint64_t{8} << 20);
  EXPECT_EQ(config->stable_log_bytes, uint64_t{16} << 20);
  EXPECT_EQ(config->delta_us, 20'000u);
  EXPECT_EQ(config->tau_ms, 1'500u);
}

TEST(VolumeConfigTest, FormerKeysOfAnExistingVolumeAreRead) {
  // As an earlier version wrote it.
  const auto config = VolumeConfigFromToml(
      "# A Salius volume, made by `salius init`.\n" + std::string(kUuid) +
          "replicas = [\"a:7400\"]\nacks = 1\ndelta_us = 50001\ntau_ms = 30001\nk = 3\n"
          "log_max_bytes = 67108865\nstable_log_bytes = 100667392\nbulk_limit_bytes = 8388609\n"
          "ballast_bytes = 16777217\ndatagram_bytes = 1473\nmulticast = \"\"\n"
          "allow_same_host = false\n",
      "volume.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->delta_us, 50'001u);
  EXPECT_EQ(config->tau_ms, 30'001u);
  EXPECT_EQ(config->log_max_bytes, 67'108'865u);
  EXPECT_EQ(config->stable_log_bytes, 100'667'392u);
  EXPECT_EQ(config->bulk_limit_bytes, 8'388'609u);
  EXPECT_EQ(config->ballast_bytes, 16'777'217u);
  EXPECT_EQ(config->datagram_bytes, 1'473u);
  const std::string written = VolumeConfigToToml(*config);
  for (const char* former : {"_bytes", "_us", "_ms"}) {
    EXPECT_EQ(written.find(former), std::string::npos) << written;
  }
}

TEST(VolumeConfigTest, SampleHasTheDefaults) {
  std::ifstream file("deploy/volume.toml.sample");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto sample = VolumeConfigFromToml(text, "volume.toml.sample");
  ASSERT_TRUE(sample.ok()) << sample.status();
  VolumeConfig config = DefaultVolumeConfig();
  config.volume = sample->volume;
  config.replicas = sample->replicas;
  config.acks = 2;
  EXPECT_EQ(VolumeConfigToToml(*sample), VolumeConfigToToml(config));
}

TEST(VolumeConfigTest, BadTextIsRefusedAndNamed) {
  const auto refusal = [](const std::string& text) {
    const auto config = VolumeConfigFromToml(text, "/b/.salius/volume.toml");
    EXPECT_EQ(config.status().code(), Code::kInvalidArgument) << text;
    EXPECT_TRUE(Says(std::string(config.status().message()), "/b/.salius/volume.toml"));
    return std::string(config.status().message());
  };
  EXPECT_TRUE(Says(refusal(std::string(kUuid) + "ackz = 1\n"), "ackz"));
  EXPECT_TRUE(Says(refusal(""), "volume"));
  EXPECT_TRUE(Says(refusal("volume = \"nonsense\"\n"), "UUID"));
  EXPECT_TRUE(Says(refusal(std::string(kUuid) + "acks = \"two\"\n"), "acks"));
  EXPECT_TRUE(Says(refusal(std::string(kUuid) + "acks = -1\n"), "acks"));
  EXPECT_TRUE(Says(refusal(std::string(kUuid) + "names = \"early\"\n"), "must be wait or async"));
  EXPECT_TRUE(Says(refusal(std::string(kUuid) + "acks = 5000000000\n"), "acks"));
  EXPECT_TRUE(Says(refusal(std::string(kUuid) + "acks = 2\n"), "acks = 2"));
  EXPECT_TRUE(Says(refusal(std::string(kUuid) + "replicas = [1]\n"), "replicas"));
  EXPECT_TRUE(Says(refusal(std::string(kUuid) + "delta = 50\n"), "delta: expected a duration"));
  EXPECT_TRUE(Says(refusal(std::string(kUuid) + "tau = \"1500us\"\n"), "tau: must be a whole"));
  EXPECT_TRUE(Says(refusal(std::string(kUuid) + "log_max = \"8MiB\"\nlog_max_bytes = 8388608\n"),
                   ":3: log_max_bytes: the former name of log_max"));
  refusal(std::string(kUuid) + "acks = \n");
  // Found by the fuzzer: the TOML library does not survive these.
  EXPECT_TRUE(Says(refusal(std::string(kUuid) + "acks =\xcf\xa7\n"), ":2: a byte that is not"));
  EXPECT_TRUE(Says(refusal("[\x03-4]"), ":1: a table"));
  EXPECT_TRUE(Says(refusal("\x03"), ":1: a byte that is not"));
  EXPECT_TRUE(Says(refusal(std::string(kUuid) + " \t[$21/sa"), ":2: a table"));
}

}  // namespace
}  // namespace salius
