#include "client/cli/doctor.h"

#include <gtest/gtest.h>
#include <linux/magic.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/findings.h"
#include "common/keys/authority.h"

namespace salius::cli {
namespace {

constexpr int64_t kFuse = 0x65735546;
constexpr int64_t kNow = 1'800'000'000;
constexpr uint64_t kGiB = uint64_t{1} << 30;

// Returns a host without a problem.
HostFacts GoodHost() {
  HostFacts facts;
  facts.kernel = "6.18.1-amd64";
  facts.fusermount = "/usr/bin/fusermount3";
  facts.root = true;
  facts.open_files_limit = 1 << 20;
  facts.memlock_limit = UINT64_MAX;
  facts.receive_buffer_max = 64 << 20;
  facts.monotonic_step_ns = 50;
  facts.realtime_s = kNow;
  return facts;
}

// Returns a volume on ext4 without a problem.
DirectoryFacts GoodVolume() {
  DirectoryFacts facts;
  facts.fs_type = EXT4_SUPER_MAGIC;
  facts.free_bytes = 100 * kGiB;
  facts.free_inodes = 900;
  facts.total_inodes = 1000;
  facts.volume = true;
  facts.config = DefaultVolumeConfig();
  facts.config.replicas = {"a:7400", "b:7400"};
  facts.config.acks = 2;
  facts.stable_log_bytes = facts.stable_log_allocated = facts.config.stable_log_bytes;
  return facts;
}

ReplicaFacts GoodReplica(const std::string& address, uint64_t incarnation) {
  ReplicaFacts facts;
  facts.address = address;
  facts.datagram_bytes = 1472;
  control::ReplicaStatusResponse status;
  status.set_incarnation(incarnation);
  status.set_free_bytes(kGiB);
  facts.status = status;
  facts.udp_rtt_us = 100;
  return facts;
}

Findings Host(const HostFacts& facts) {
  Findings findings;
  JudgeHost(facts, findings);
  return findings;
}

Findings Directory(const DirectoryFacts& facts) {
  Findings findings;
  JudgeDirectory(facts, kNow * 1'000'000'000, findings);
  return findings;
}

Findings Replicas(const std::vector<ReplicaFacts>& replicas) {
  Findings findings;
  JudgeReplicas(GoodVolume().config, replicas, findings);
  return findings;
}

// Returns the level of the finding of that name; one that is not OK must have advice.
Level LevelOf(const Findings& findings, const std::string& name) {
  for (const Finding& finding : findings.all()) {
    EXPECT_EQ(finding.advice.empty(), finding.level == Level::kOk) << finding.name;
    if (finding.name == name) return finding.level;
  }
  ADD_FAILURE() << "no finding " << name << " in\n" << findings.ToText();
  return Level::kOk;
}

bool AllOk(const Findings& findings) {
  for (const Finding& finding : findings.all()) {
    if (finding.level != Level::kOk) return false;
  }
  return true;
}

TEST(DoctorTest, GoodHostDirectoryAndReplicasAreAllOk) {
  EXPECT_TRUE(AllOk(Host(GoodHost()))) << Host(GoodHost()).ToText();
  EXPECT_TRUE(AllOk(Directory(GoodVolume()))) << Directory(GoodVolume()).ToText();
  const Findings replicas = Replicas({GoodReplica("a:7400", 1), GoodReplica("b:7400", 2)});
  EXPECT_TRUE(AllOk(replicas)) << replicas.ToText();
}

TEST(DoctorTest, OldKernelFailsAndOneWithoutMountIdsWarns) {
  HostFacts facts = GoodHost();
  facts.kernel = "5.10.0";
  EXPECT_EQ(LevelOf(Host(facts), "kernel"), Level::kFail);
  facts.kernel = "6.1.0-18-amd64";
  EXPECT_EQ(LevelOf(Host(facts), "kernel"), Level::kWarn);
  facts.kernel = "nonsense";
  EXPECT_EQ(LevelOf(Host(facts), "kernel"), Level::kWarn);
}

TEST(DoctorTest, MissingFuseFails) {
  HostFacts facts = GoodHost();
  facts.fuse_device = absl::NotFoundError("/dev/fuse: No such file or directory");
  facts.fusermount = "";
  EXPECT_EQ(LevelOf(Host(facts), "/dev/fuse"), Level::kFail);
  EXPECT_EQ(LevelOf(Host(facts), "fusermount3"), Level::kWarn);
}

TEST(DoctorTest, RequestTimeoutShorterThanADrainWarns) {
  HostFacts facts = GoodHost();
  facts.fuse_default_timeout_s = 60;
  EXPECT_EQ(LevelOf(Host(facts), "FUSE request time-out"), Level::kWarn);
  facts.fuse_default_timeout_s = 0;
  facts.fuse_max_timeout_s = 899;
  EXPECT_EQ(LevelOf(Host(facts), "FUSE request time-out"), Level::kWarn);
  facts.fuse_default_timeout_s = 7200;
  EXPECT_EQ(LevelOf(Host(facts), "FUSE request time-out"), Level::kWarn);
  facts.fuse_max_timeout_s = 900;
  EXPECT_EQ(LevelOf(Host(facts), "FUSE request time-out"), Level::kOk);
}

TEST(DoctorTest, UserWithoutRightsAndLowLimitsAreFound) {
  HostFacts facts = GoodHost();
  facts.root = false;
  facts.open_files_limit = 1024;
  facts.memlock_limit = 65536;
  facts.receive_buffer_max = 212992;
  const Findings findings = Host(facts);
  EXPECT_EQ(LevelOf(findings, "user"), Level::kFail);
  EXPECT_EQ(LevelOf(findings, "open files"), Level::kWarn);
  EXPECT_EQ(LevelOf(findings, "locked memory"), Level::kWarn);
  EXPECT_EQ(LevelOf(findings, "socket buffers"), Level::kWarn);
}

TEST(DoctorTest, ClocksThatCannotBeAreFound) {
  HostFacts facts = GoodHost();
  facts.monotonic_step_ns = -1;
  facts.realtime_s = 17;
  EXPECT_EQ(LevelOf(Host(facts), "monotonic clock"), Level::kFail);
  EXPECT_EQ(LevelOf(Host(facts), "time of day"), Level::kWarn);
  facts.monotonic_step_ns = 3'000'000'000;
  EXPECT_EQ(LevelOf(Host(facts), "monotonic clock"), Level::kFail);
}

TEST(DoctorTest, NetworkFileSystemsAndOverlaysFailAndOthersWarn) {
  DirectoryFacts facts = GoodVolume();
  for (const int64_t type : {kFuse, static_cast<int64_t>(NFS_SUPER_MAGIC),
                             static_cast<int64_t>(OVERLAYFS_SUPER_MAGIC)}) {
    facts.fs_type = type;
    EXPECT_EQ(LevelOf(Directory(facts), "file system"), Level::kFail);
  }
  for (const int64_t type : {int64_t{TMPFS_MAGIC}, int64_t{0x12345678}}) {
    facts.fs_type = type;
    EXPECT_EQ(LevelOf(Directory(facts), "file system"), Level::kWarn);
  }
}

TEST(DoctorTest, MissingFeatureOfTheFileSystemFails) {
  DirectoryFacts facts = GoodVolume();
  facts.read_only = true;
  facts.trusted_xattr = absl::PermissionDeniedError("not permitted");
  facts.file_handle = absl::UnimplementedError("not supported");
  const Findings findings = Directory(facts);
  EXPECT_EQ(LevelOf(findings, "writable"), Level::kFail);
  EXPECT_EQ(LevelOf(findings, "trusted xattrs"), Level::kFail);
  EXPECT_EQ(LevelOf(findings, "file handles"), Level::kFail);
  EXPECT_TRUE(findings.AnyFail());
}

TEST(DoctorTest, RiskToDataWarns) {
  DirectoryFacts facts = GoodVolume();
  facts.flushes_nothing = true;
  EXPECT_EQ(LevelOf(Directory(facts), "barriers"), Level::kWarn);
  facts = GoodVolume();
  facts.ext4_errors = 3;
  EXPECT_EQ(LevelOf(Directory(facts), "ext4"), Level::kWarn);
}

TEST(DoctorTest, LittleSpaceWarnsAndTooLittleFails) {
  DirectoryFacts facts = GoodVolume();
  facts.free_bytes = facts.config.log_max_bytes - 1;
  EXPECT_EQ(LevelOf(Directory(facts), "space"), Level::kFail);
  facts.free_bytes = facts.config.log_max_bytes + 1;
  EXPECT_EQ(LevelOf(Directory(facts), "space"), Level::kWarn);
  facts.free_inodes = 1;
  EXPECT_EQ(LevelOf(Directory(facts), "inodes"), Level::kWarn);
}

TEST(DoctorTest, DirectoryWithoutVolumeWarns) {
  DirectoryFacts facts = GoodVolume();
  facts.volume = false;
  EXPECT_EQ(LevelOf(Directory(facts), "volume"), Level::kWarn);
}

TEST(DoctorTest, DamagedConfigAndStateFail) {
  DirectoryFacts facts = GoodVolume();
  facts.state_status = absl::DataLossError("no slot is valid");
  EXPECT_EQ(LevelOf(Directory(facts), "state"), Level::kFail);
  facts.config_status = absl::InvalidArgumentError("volume.toml:1: no");
  EXPECT_EQ(LevelOf(Directory(facts), "volume"), Level::kFail);
}

TEST(DoctorTest, AdviceFitsWhyTheVolumeCannotBeOpened) {
  const auto advises = [](const absl::Status& why, const char* word) {
    DirectoryFacts facts = GoodVolume();
    facts.config_status = why;
    const Findings findings = Directory(facts);
    for (const Finding& finding : findings.all()) {
      if (finding.name == "volume") return finding.advice.find(word) != std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(advises(absl::DataLossError("missing"), "backup"));
  EXPECT_TRUE(advises(absl::InvalidArgumentError("line 3"), "volume.toml"));
  EXPECT_TRUE(advises(absl::PermissionDeniedError("no"), "root"));
  EXPECT_FALSE(advises(absl::FailedPreconditionError("read-only"), "volume.toml"));
}

TEST(DoctorTest, StableLogThatIsMissingCutOrSparseFails) {
  DirectoryFacts facts = GoodVolume();
  facts.stable_log_allocated = 4096;
  EXPECT_EQ(LevelOf(Directory(facts), "stable log"), Level::kFail) << "sparse";
  facts = GoodVolume();
  facts.stable_log_bytes -= 1;
  EXPECT_EQ(LevelOf(Directory(facts), "stable log"), Level::kFail) << "cut";
  facts.stable_log = absl::NotFoundError("stable.log");
  EXPECT_EQ(LevelOf(Directory(facts), "stable log"), Level::kFail) << "missing";
  for (const bool open : {false, true}) {
    facts.state.open = open;
    const Findings findings = Directory(facts);
    for (const Finding& finding : findings.all()) {
      if (finding.name != "stable log") continue;
      EXPECT_EQ(finding.advice.find("cannot be recovered") != std::string::npos, open);
    }
  }
}

TEST(DoctorTest, RecordFromTheFutureWarns) {
  DirectoryFacts facts = GoodVolume();
  facts.state.last_timestamp_ns = static_cast<uint64_t>(kNow + 3600) * 1'000'000'000;
  EXPECT_EQ(LevelOf(Directory(facts), "clock against volume"), Level::kWarn);
}

TEST(DoctorTest, ReplicaThatDoesNotAnswerFailsAndIsNotCounted) {
  ReplicaFacts silent = GoodReplica("b:7400", 2);
  silent.status = absl::UnavailableError("connection refused");
  silent.udp_rtt_us = absl::DeadlineExceededError("no answer");
  const Findings findings = Replicas({GoodReplica("a:7400", 1), silent});
  EXPECT_EQ(LevelOf(findings, "replica b:7400"), Level::kFail);
  EXPECT_EQ(LevelOf(findings, "replica b:7400 UDP"), Level::kFail);
  EXPECT_EQ(LevelOf(findings, "replicas"), Level::kFail) << "1 of 2 can serve, 2 are needed";
}

TEST(DoctorTest, LastSpareReplicaLostWarns) {
  ReplicaFacts unresolved = GoodReplica("c:7400", 3);
  unresolved.resolved = absl::NotFoundError("no such host");
  const Findings findings =
      Replicas({GoodReplica("a:7400", 1), GoodReplica("b:7400", 2), unresolved});
  EXPECT_EQ(LevelOf(findings, "replica c:7400"), Level::kFail);
  EXPECT_EQ(LevelOf(findings, "replicas"), Level::kWarn);
}

TEST(DoctorTest, ReplicaWithoutMemoryFailsUnlessItHoldsTheVolumeAlready) {
  const VolumeConfig config = GoodVolume().config;
  ReplicaFacts full = GoodReplica("a:7400", 1);
  full.status->set_free_bytes(0);
  Findings findings;
  JudgeReplicas(config, {full}, findings);
  EXPECT_EQ(LevelOf(findings, "replica a:7400 memory"), Level::kFail);
  auto* const held = full.status->add_volumes();
  held->set_volume(config.volume.bytes.data(), config.volume.bytes.size());
  held->set_memory_bytes(kGiB);
  Findings again;
  JudgeReplicas(config, {full, GoodReplica("b:7400", 2)}, again);
  EXPECT_TRUE(AllOk(again)) << again.ToText();
}

TEST(DoctorTest, FillOfAReplicaWarnsAndFailsWhenThereIsNoPlace) {
  const auto with = [](uint32_t used, uint64_t granted, uint32_t promises, uint64_t silent_s) {
    ReplicaFacts facts = GoodReplica("a:7400", 1);
    facts.status->set_slots(32);
    facts.status->set_slots_used(used);
    facts.status->set_granted_bytes(granted);
    facts.status->set_promises(promises);
    facts.status->set_promises_most(100);
    auto* const volume = facts.status->add_volumes();
    volume->set_volume(std::string(16, 'v'));
    volume->set_silent_s(silent_s);
    volume->set_memory_bytes(1);
    return LevelOf(Replicas({facts, GoodReplica("b:7400", 2)}), "replica a:7400 fill");
  };
  EXPECT_EQ(with(1, 0, 1, 0), Level::kOk);
  EXPECT_EQ(with(26, 0, 1, 0), Level::kWarn);
  EXPECT_EQ(with(1, 5 * kGiB, 1, 0), Level::kWarn);
  EXPECT_EQ(with(1, 0, 80, 0), Level::kWarn);
  EXPECT_EQ(with(1, 0, 1, 100'000), Level::kWarn);
  EXPECT_EQ(with(32, 0, 1, 0), Level::kFail);
  EXPECT_EQ(with(1, 0, 100, 0), Level::kFail);
}

TEST(DoctorTest, AnswersOfAStrangerFailWithAdviceOfTheirOwn) {
  ReplicaFacts stranger = GoodReplica("a:7400", 1);
  stranger.udp_rtt_us = absl::FailedPreconditionError("answers come from another address");
  const Findings findings = Replicas({stranger, GoodReplica("b:7400", 2)});
  EXPECT_EQ(LevelOf(findings, "replica a:7400 UDP"), Level::kFail);
  EXPECT_NE(findings.ToText().find("name the replica by that address"), std::string::npos);
}

TEST(DoctorTest, TwoNamesOfOneReplicaFail) {
  const Findings findings = Replicas({GoodReplica("a:7400", 1), GoodReplica("b:7400", 1)});
  EXPECT_EQ(LevelOf(findings, "replicas"), Level::kFail);
}

TEST(DoctorTest, SlowReplicaAndNarrowRouteWarn) {
  ReplicaFacts far = GoodReplica("a:7400", 1);
  far.udp_rtt_us = 60'000;
  far.datagram_bytes = 1200;
  const Findings findings = Replicas({far, GoodReplica("b:7400", 2)});
  EXPECT_EQ(LevelOf(findings, "replica a:7400 UDP"), Level::kWarn);
  EXPECT_EQ(LevelOf(findings, "route to a:7400"), Level::kWarn);
}

TEST(DoctorTest, DatagramsLargerThanTheRouteWarn) {
  VolumeConfig config = GoodVolume().config;
  config.datagram_bytes = 8972;
  Findings findings;
  JudgeReplicas(config, {GoodReplica("a:7400", 1), GoodReplica("b:7400", 2)}, findings);
  EXPECT_EQ(LevelOf(findings, "route to a:7400"), Level::kWarn);
}

TEST(DoctorTest, UnreachableRouteFails) {
  ReplicaFacts cut = GoodReplica("a:7400", 1);
  cut.datagram_bytes = absl::UnavailableError("network is unreachable");
  EXPECT_EQ(LevelOf(Replicas({cut}), "route to a:7400"), Level::kFail);
}

// Returns a certificate of the identity, made `age_days` ago for a year.
keys::Certificate CertificateOf(const keys::Identity& identity, int64_t age_days) {
  keys::Certificate certificate;
  certificate.content.common_name = identity.ToString();
  certificate.content.identity = identity;
  certificate.content.validity = {kNow - age_days * keys::kDayS,
                                  kNow + (365 - age_days) * keys::kDayS};
  return certificate;
}

KeyFacts GoodKeys(keys::Kind kind = keys::Kind::kClient, int64_t age_days = 1) {
  KeyFacts facts;
  facts.path = "/k/own.pem";
  facts.certificate = CertificateOf({kind, "x"}, age_days);
  facts.authorities = {CertificateOf({keys::Kind::kOperator, "ca"}, 1)};
  return facts;
}

Findings Keys(const KeyFacts& facts, bool calls = true) {
  Findings findings;
  JudgeKeys(facts, calls, kNow, findings);
  return findings;
}

TEST(DoctorTest, KeysAreJudgedByTheirProblemKindAndAge) {
  EXPECT_TRUE(AllOk(Keys(GoodKeys()))) << Keys(GoodKeys()).ToText();
  EXPECT_TRUE(Keys(KeyFacts()).all().empty()) << "a volume without keys";
  EXPECT_EQ(LevelOf(Keys(GoodKeys(keys::Kind::kReplica)), "keys"), Level::kFail);
  EXPECT_EQ(LevelOf(Keys(GoodKeys(keys::Kind::kReplica), false), "keys"), Level::kOk);
  EXPECT_EQ(LevelOf(Keys(GoodKeys(keys::Kind::kClient, 243)), "keys"), Level::kOk);
  EXPECT_EQ(LevelOf(Keys(GoodKeys(keys::Kind::kClient, 244)), "keys"), Level::kWarn);
  KeyFacts old_authority = GoodKeys();
  old_authority.authorities = {CertificateOf({keys::Kind::kOperator, "ca"}, 300)};
  EXPECT_EQ(LevelOf(Keys(old_authority), "authority"), Level::kWarn);
  for (const absl::Status& problem :
       {absl::NotFoundError("x"), absl::PermissionDeniedError("x"), absl::DataLossError("x"),
        absl::FailedPreconditionError("x")}) {
    KeyFacts facts;
    facts.path = "/k/own.pem";
    facts.problem = problem;
    EXPECT_EQ(LevelOf(Keys(facts), "keys"), Level::kFail) << problem;
  }
}

TEST(DoctorTest, ReplicasCertificateClockAndOwnerAreJudged) {
  const auto judge = [](const ReplicaFacts& replica, const KeyFacts& own) {
    Findings findings;
    JudgeReplicaKeys(replica, own, kNow, findings);
    return findings;
  };
  using Status = control::ReplicaStatusResponse;
  ReplicaFacts facts = GoodReplica("a:7400", 1);
  facts.certificate = CertificateOf({keys::Kind::kReplica, "r"}, 1);
  facts.clock_ahead_ms = -59'000;
  facts.status->set_asked_owner(Status::OWNER_CALLER);
  EXPECT_TRUE(AllOk(judge(facts, GoodKeys()))) << judge(facts, GoodKeys()).ToText();
  EXPECT_EQ(judge(facts, GoodKeys()).all().size(), 3u);
  EXPECT_TRUE(judge(facts, KeyFacts()).all().empty()) << "without keys nothing is judged";
  facts.status->set_asked_owner(Status::OWNER_NONE);
  EXPECT_EQ(LevelOf(judge(facts, GoodKeys()), "replica a:7400 owner"), Level::kOk);
  facts.status->set_asked_owner(Status::OWNER_OTHER);
  EXPECT_EQ(LevelOf(judge(facts, GoodKeys()), "replica a:7400 owner"), Level::kFail);
  EXPECT_EQ(LevelOf(judge(facts, GoodKeys(keys::Kind::kOperator)), "replica a:7400 owner"),
            Level::kOk);
  for (const int64_t ahead_ms : {-61'000, 61'000}) {
    facts.clock_ahead_ms = ahead_ms;
    EXPECT_EQ(LevelOf(judge(facts, GoodKeys()), "replica a:7400 clock"), Level::kWarn);
  }
  facts.certificate = CertificateOf({keys::Kind::kReplica, "r"}, 300);
  EXPECT_EQ(LevelOf(judge(facts, GoodKeys()), "replica a:7400 keys"), Level::kWarn);
}

TEST(DoctorTest, RefusedHandshakeHasAdviceOfItsOwn) {
  ReplicaFacts refused = GoodReplica("a:7400", 1);
  refused.status = absl::UnavailableError("it takes calls with keys only");
  refused.refused = true;
  const Findings findings = Replicas({refused, GoodReplica("b:7400", 2)});
  EXPECT_EQ(LevelOf(findings, "replica a:7400"), Level::kFail);
  EXPECT_NE(findings.ToText().find("#keys-refused"), std::string::npos) << findings.ToText();
  EXPECT_EQ(findings.ToText().find("#control-port-closed"), std::string::npos);
}

TEST(DoctorTest, NoReplicasWarns) { EXPECT_EQ(LevelOf(Replicas({}), "replicas"), Level::kWarn); }

TEST(DoctorTest, ProbeOfAClosedPortHasNoStatus) {
  const ReplicaFacts nobody = GatherReplicaFacts("127.0.0.1:1");
  EXPECT_TRUE(nobody.resolved.ok());
  EXPECT_TRUE(nobody.datagram_bytes.ok());
  EXPECT_FALSE(nobody.status.ok());
  EXPECT_FALSE(nobody.udp_rtt_us.ok());
  EXPECT_FALSE(GatherReplicaFacts("no port or host at all:").resolved.ok());
}

TEST(FindingsTest, TextCountsAndJsonNamesLevels) {
  Findings findings;
  findings.Ok("a", "fine");
  findings.Fail("b", "bad", "mend it");
  EXPECT_EQ(findings.ToText(),
            "OK    a: fine\nFAIL  b: bad\n      -> mend it\n1 OK, 0 WARN, 1 FAIL\n");
  EXPECT_NE(findings.ToJson().find("\"level\":\"FAIL\""), std::string::npos);
}

}  // namespace
}  // namespace salius::cli
