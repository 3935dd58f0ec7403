// Options of a mount: those taken, those refused, and the text of a refusal.
#include "client/mount/mount_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

namespace salius {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

MountOptions Parsed(const std::string& list) {
  const absl::StatusOr<MountOptions> options = ParseMountOptions({list});
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(MountOptions{});
}

std::string Refusal(const std::string& list) {
  const absl::StatusOr<MountOptions> options = ParseMountOptions({list});
  EXPECT_FALSE(options.ok()) << list;
  return std::string(options.status().message());
}

TEST(MountOptionsTest, TakesEveryOptionOfItsOwn) {
  const MountOptions options = Parsed(
      "replicas=a:7400;[::1]:7400,acks=2,delta=20ms,tau=10s,k=3,commit=sync,recover=refuse,log_max="
      "32M,"
      "bulk_limit=1M,multicast=239.1.1.1:7400,datagram=8972,names=async,insecure,metrics=127.0.0.1:9400,"
      "log_level=warn,log=/tmp/x,threads=3,spin=20us");
  EXPECT_THAT(*options.replicas, ElementsAre("a:7400", "[::1]:7400"));
  EXPECT_EQ(options.acks, 2u);
  EXPECT_EQ(options.delta_us, 20000u);
  EXPECT_EQ(options.tau_ms, 10000u);
  EXPECT_EQ(options.k, 3u);
  EXPECT_EQ(options.recover, RecoverMode::kRefuse);
  EXPECT_EQ(options.log_max_bytes, uint64_t{32} << 20);
  EXPECT_EQ(options.bulk_limit_bytes, uint64_t{1} << 20);
  EXPECT_EQ(options.multicast, "239.1.1.1:7400");
  EXPECT_EQ(options.datagram_bytes, 8972u);
  EXPECT_EQ(options.names, NameMode::kAsync);
  EXPECT_TRUE(options.insecure);
  EXPECT_EQ(options.metrics, "127.0.0.1:9400");
  EXPECT_EQ(options.log_level, "warn");
  EXPECT_EQ(options.log_file, "/tmp/x");
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.spin_us, 20u);
}

TEST(MountOptionsTest, StandardOptionsBecomeFlagsOrNothing) {
  EXPECT_EQ(Parsed("ro,nodev,nosuid,noexec,noatime").mount_flags,
            static_cast<unsigned long>(MS_RDONLY | MS_NODEV | MS_NOSUID | MS_NOEXEC | MS_NOATIME));
  EXPECT_EQ(Parsed("ro,rw,nodev,dev").mount_flags, 0u);  // the later one wins
  EXPECT_EQ(Parsed("defaults,_netdev,noauto,auto,user,nofail,x-systemd.automount,x-y=z,fsname=q")
                .mount_flags,
            0u);
}

TEST(MountOptionsTest, DirsyncAndSyncMakeNamesWait) {
  EXPECT_TRUE(SyncsNames(Parsed("dirsync")));
  EXPECT_TRUE(SyncsNames(Parsed("sync")));
  EXPECT_FALSE(SyncsNames(Parsed("names=async,async")));
}

TEST(MountOptionsTest, SeveralListsAreOne) {
  const absl::StatusOr<MountOptions> options = ParseMountOptions({"acks=1,ro", "acks=2"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->acks, 2u);
  EXPECT_EQ(options->mount_flags, static_cast<unsigned long>(MS_RDONLY));
}

TEST(MountOptionsTest, UnknownOptionIsNamedWithThoseThatAreKnown) {
  EXPECT_THAT(Refusal("acks=1,frobnicate"),
              AllOf(HasSubstr("\"frobnicate\""), HasSubstr("replicas="), HasSubstr("noatime")));
  EXPECT_THAT(Refusal("frob=1"), HasSubstr("\"frob=1\""));
  EXPECT_THAT(Refusal("acks"), HasSubstr("\"acks\""));        // needs a value
  EXPECT_THAT(Refusal("insecure=1"), HasSubstr("insecure"));  // takes none
}

TEST(MountOptionsTest, NameWithHyphensIsRefusedWithTheRightOne) {
  EXPECT_THAT(Refusal("log-max=64MiB"), HasSubstr("option log-max is spelled log_max"));
  EXPECT_THAT(Refusal("no-such=1"), HasSubstr("unknown option \"no-such=1\""));
}

TEST(MountOptionsTest, HelpShowsEachOptionWithItsValue) {
  EXPECT_THAT(MountOptionsHelp(),
              AllOf(HasSubstr("\n  replicas=HOST[:PORT];... "), HasSubstr("\n  insecure "),
                    HasSubstr("\n  log_level=debug|info|warn|error|off\n"), HasSubstr("noatime")));
}

TEST(MountOptionsTest, ErrorOfAValueOutOfRangeNamesTheRange) {
  EXPECT_THAT(Refusal("acks=0"), AllOf(HasSubstr("acks=0"), HasSubstr("1 to 8")));
  EXPECT_THAT(Refusal("acks=9"), HasSubstr("1 to 8"));
  EXPECT_THAT(Refusal("acks=two"), HasSubstr("acks=two"));
  EXPECT_THAT(Refusal("k=0"), HasSubstr("k=0"));
  EXPECT_THAT(Refusal("threads=0"), HasSubstr("threads"));
  EXPECT_THAT(Refusal("threads=49"), HasSubstr("1 to 48"));
  EXPECT_EQ(Parsed("spin=0us").spin_us, 0u);
  EXPECT_THAT(Refusal("spin=2ms"), AllOf(HasSubstr("spin=2ms"), HasSubstr("1ms")));
  EXPECT_THAT(Refusal("delta=50"), HasSubstr("delta=50"));  // a unit is required
  EXPECT_THAT(Refusal("delta=0ms"), HasSubstr("delta"));
  EXPECT_THAT(Refusal("tau=1500us"), HasSubstr("milliseconds"));
  EXPECT_THAT(Refusal("log_max=x"), HasSubstr("log_max"));
  EXPECT_THAT(Refusal("datagram=70000"), HasSubstr("65507"));
  EXPECT_THAT(Refusal("recover=maybe"), HasSubstr("auto or refuse"));
  EXPECT_THAT(Refusal("log_level=loud"), HasSubstr("debug"));
  EXPECT_THAT(Refusal("log=relative"), HasSubstr("absolute"));
}

TEST(MountOptionsTest, TriggerBelongsToExternalContract) {
  EXPECT_EQ(Parsed("commit=external").contract.commit, Commit::kExternal);
  EXPECT_TRUE(Parsed("commit=external").contract.relaxed());
  EXPECT_FALSE(Parsed("commit=external").output_triggered);
  EXPECT_FALSE(Parsed("commit=external,trigger=eager").output_triggered);
  EXPECT_TRUE(Parsed("trigger=output,commit=external").output_triggered);
  EXPECT_THAT(Refusal("trigger=output"), HasSubstr("only with commit=external"));
  EXPECT_THAT(Refusal("commit=external,trigger=late"), HasSubstr("eager or output"));
  EXPECT_THAT(Refusal("commit=external,fsync=osync"), HasSubstr("contradicts commit=external"));
}

TEST(MountOptionsTest, ContractIsSettledFromItsOptions) {
  EXPECT_FALSE(Parsed("").contract.relaxed());
  EXPECT_FALSE(Parsed("commit=sync,fsync=dsync").contract.relaxed());
  EXPECT_EQ(Parsed("commit=ordered").contract.commit, Commit::kOrdered);
  EXPECT_TRUE(Parsed("commit=ordered").contract.fsync_orders);
  EXPECT_TRUE(Parsed("fsync=osync").contract.relaxed());
  EXPECT_FALSE(Parsed("fsync=osync").contract.exempts_o_sync);
  EXPECT_TRUE(Parsed("osync-exempt=o_sync,fsync=osync").contract.exempts_o_sync);
  EXPECT_TRUE(Parsed("commit=ordered,osync-exempt=o_sync").contract.exempts_o_sync);
}

TEST(MountOptionsTest, ContractThatContradictsItselfIsRefused) {
  EXPECT_THAT(Refusal("commit=perhaps"), HasSubstr("must be sync, external or ordered"));
  EXPECT_THAT(Refusal("commit=ordered,fsync=dsync"), HasSubstr("contradicts commit=ordered"));
  EXPECT_THAT(Refusal("osync-exempt=o_sync"), HasSubstr("only with"));
  for (const char* contract : {"commit=ordered,", "fsync=osync,", "commit=external,"}) {
    for (const char* other : {"names=wait", "dirsync", "sync"}) {
      EXPECT_THAT(Refusal(std::string(contract) + other),
                  AllOf(HasSubstr(other), HasSubstr("contradicts")));
    }
    EXPECT_EQ(Parsed(std::string(contract) + "names=async").names, NameMode::kAsync);
  }
}

TEST(OverrideConfigTest, RelaxedContractHasNamesAsync) {
  VolumeConfig config = DefaultVolumeConfig();
  config.names = NameMode::kWait;
  ASSERT_TRUE(OverrideConfig(Parsed("commit=ordered"), &config).ok());
  EXPECT_EQ(config.names, NameMode::kAsync);
}

VolumeConfig TwoReplicas() {
  VolumeConfig config = DefaultVolumeConfig();
  config.replicas = {"127.0.0.1:7401", "127.0.0.1:7402"};
  config.acks = 2;
  return config;
}

TEST(OverrideConfigTest, OptionsWinAndTheRestStays) {
  VolumeConfig config = TwoReplicas();
  ASSERT_TRUE(OverrideConfig(Parsed("acks=1,delta=7ms"), &config).ok());
  EXPECT_EQ(config.acks, 1u);
  EXPECT_EQ(config.delta_us, 7000u);
  EXPECT_EQ(config.replicas.size(), 2u);
  EXPECT_EQ(config.k, DefaultVolumeConfig().k);
}

TEST(OverrideConfigTest, KeysOfTheOptionWinAndEmptyIsNone) {
  VolumeConfig config = TwoReplicas();
  config.keys = "/etc/salius/volume.pem";
  ASSERT_TRUE(OverrideConfig(Parsed("acks=1"), &config).ok());
  EXPECT_EQ(config.keys, "/etc/salius/volume.pem");
  ASSERT_TRUE(OverrideConfig(Parsed("keys=/k/client-a.pem"), &config).ok());
  EXPECT_EQ(config.keys, "/k/client-a.pem");
  ASSERT_TRUE(OverrideConfig(Parsed("keys="), &config).ok());
  EXPECT_EQ(config.keys, "");
  EXPECT_THAT(Refusal("keys=client-a.pem"), HasSubstr("absolute path"));
}

TEST(OverrideConfigTest, FewerReplicasThanAcksIsAnErrorNotAWeakerVolume) {
  VolumeConfig config = TwoReplicas();
  EXPECT_EQ(OverrideConfig(Parsed("replicas=127.0.0.1:7401"), &config).code(),
            absl::StatusCode::kInvalidArgument);
  config = TwoReplicas();
  EXPECT_EQ(OverrideConfig(Parsed("acks=3"), &config).code(), absl::StatusCode::kInvalidArgument);
}

TEST(OverrideConfigTest, NoReplicasAtAllIsModeLocal) {
  VolumeConfig config = TwoReplicas();
  ASSERT_TRUE(OverrideConfig(Parsed("replicas="), &config).ok());
  EXPECT_TRUE(config.replicas.empty());
  EXPECT_EQ(config.acks, 1u);
}

TEST(OverrideConfigTest, LogLargerThanTheStableLogIsAnError) {
  VolumeConfig config = TwoReplicas();
  EXPECT_EQ(OverrideConfig(Parsed("log_max=10G"), &config).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MountOptionsTest, OptionsShownByTheKernelAreTaken) {
  EXPECT_EQ(Parsed("rw,relatime,user_id=0,group_id=0,default_permissions,allow_other").mount_flags,
            static_cast<unsigned long>(MS_RELATIME));
  EXPECT_THAT(Refusal("user_id=5"), HasSubstr("user_id=5"));
}

TEST(MountOptionsTest, BindGoesWithRemountOnly) {
  EXPECT_TRUE(Parsed("remount,ro").remount);
  EXPECT_TRUE(Parsed("remount,bind,ro").bind);
  EXPECT_THAT(Refusal("bind,ro"), HasSubstr("only with remount"));
}

TEST(CheckRemountTest, FlagsOfTheKernelAndValuesThatAreThereAlreadyAreTaken) {
  VolumeConfig config = TwoReplicas();
  const MountOptions now = Parsed("acks=2,insecure,threads=3,log=/l,keys=/k.pem");
  ASSERT_TRUE(OverrideConfig(now, &config).ok());
  for (const char* wanted :
       {"remount,ro", "remount,rw,noatime,nosuid", "remount,acks=2,insecure,threads=3,log=/l",
        "remount,commit=sync,recover=refuse,defaults,x-y", "remount,keys=/k.pem"}) {
    EXPECT_TRUE(CheckRemount(now, config, Parsed(wanted)).ok()) << wanted;
  }
}

TEST(CheckRemountTest, EachOptionOfItsOwnIsRefusedByNameWhenItWouldChange) {
  VolumeConfig config = TwoReplicas();
  config.names = NameMode::kWait;
  for (const char* wanted :
       {"replicas=x:1", "acks=1", "delta=1s", "tau=1s", "k=9", "log_max=1M", "bulk_limit=1K",
        "multicast=239.1.1.1:1", "datagram=600", "keys=/k", "names=async", "insecure", "metrics=127.0.0.1:1",
        "log_level=debug", "log=/l", "threads=7", "spin=1us", "dirsync", "commit=ordered",
        "fsync=osync", "osync-exempt=o_sync"}) {
    VolumeConfig used = config;
    used.acks = 2;
    const absl::Status refused =
        CheckRemount(MountOptions{}, used, Parsed(std::string("remount,") + wanted));
    const std::string name = std::string(wanted).substr(0, std::string(wanted).find('='));
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << wanted;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("option " + name + " cannot change"));
  }
}

TEST(CheckRemountTest, SyncIsRefusedOnARelaxedMount) {
  const VolumeConfig config = TwoReplicas();
  const MountOptions now = Parsed("commit=ordered");
  EXPECT_TRUE(CheckRemount(now, config, Parsed("remount,commit=ordered,ro")).ok());
  EXPECT_THAT(std::string(CheckRemount(now, config, Parsed("remount,sync")).message()),
              HasSubstr("contradicts the mount's contract"));
}

TEST(DefaultThreadsTest, TwoToACpuAndEightAtMost) {
  EXPECT_EQ(DefaultThreads(0), 2);
  EXPECT_EQ(DefaultThreads(1), 2);
  EXPECT_EQ(DefaultThreads(2), 4);
  EXPECT_EQ(DefaultThreads(64), 8);
}

}  // namespace
}  // namespace salius
