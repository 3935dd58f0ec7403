// The subcommands as they are called, on real directories. Needs root (trusted xattrs), as Salius
// does.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "client/cli/acknowledge.h"
#include "client/cli/bench.h"
#include "client/cli/doctor.h"
#include "client/cli/exit_code.h"
#include "client/cli/forget.h"
#include "client/cli/init.h"
#include "client/cli/keys.h"
#include "client/cli/status.h"
#include "common/file.h"
#include "log/recovery_notes.h"
#include "storage/backing.h"

namespace salius::cli {
namespace {

using Words = std::vector<std::string>;

struct Outcome {
  int code = 0;
  std::string out, err;
};

Outcome Call(int (*command)(absl::Span<const std::string>), const Words& words) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.code = command(words);
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class CommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    // Not under the output directory of the build, which may be on an overlay.
    std::string pattern = "/var/tmp/salius-cli-XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // Makes a small volume quickly.
  Outcome Init(Words more) {
    more.insert(more.begin(), directory_);
    return Call(RunInit, more);
  }
  Outcome InitSmall(Words more = {}) {
    for (const char* const word : {"--replicas", "127.0.0.1:7411,127.0.0.1:7412", "--log-max",
                                   "4MiB", "--stable-log", "8MiB", "--ballast", "0"}) {
      more.push_back(word);
    }
    return Init(more);
  }
  Outcome InitOf(const std::string& replicas) {
    return Init({"--replicas", replicas, "--log-max", "4MiB", "--ballast", "0"});
  }
  bool HasVolume() const { return std::filesystem::exists(directory_ + "/.salius"); }

  std::string directory_;
};

TEST_F(CommandsTest, EveryCommandExplainsItself) {
  for (const auto command : {RunInit, RunStatus, RunAcknowledge, RunDoctor, RunBench}) {
    const Outcome outcome = Call(command, {"--help"});
    EXPECT_EQ(outcome.code, kExitOk);
    EXPECT_TRUE(Contains(outcome.out, "usage: salius "));
    EXPECT_TRUE(Contains(outcome.out, "Exit codes:"));
    EXPECT_EQ(Call(command, {"--no-such-option"}).code, kExitUsage);
  }
}

TEST_F(CommandsTest, InitMakesAVolumeThatStatusAndDoctorKnow) {
  const Outcome init = InitSmall({"--acks", "2", "--delta", "20ms", "--tau", "10s", "--k", "3",
                                 "--names", "async"});
  ASSERT_EQ(init.code, kExitOk) << init.err;
  EXPECT_TRUE(Contains(init.out, "durable with 2 of 2 replicas")) << init.out;

  const auto status = ReadOfflineStatus(directory_);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->config.acks, 2u);
  EXPECT_EQ(status->config.delta_us, 20'000u);
  EXPECT_EQ(status->config.tau_ms, 10'000u);
  EXPECT_EQ(status->config.k, 3u);
  EXPECT_EQ(status->config.names, NameMode::kAsync);
  EXPECT_FALSE(status->state.open);
  EXPECT_EQ(status->in_use_by, "");

  const Outcome text = Call(RunStatus, {directory_});
  EXPECT_EQ(text.code, kExitNotMounted);
  EXPECT_TRUE(Contains(text.out, "clean")) << text.out;
  EXPECT_TRUE(Contains(text.out, "nothing: this is what the state file says")) << text.out;
  const Outcome json = Call(RunStatus, {directory_, "--json"});
  EXPECT_TRUE(Contains(json.out, "\"mounted\":false")) << json.out;
  EXPECT_TRUE(Contains(json.out, "\"health\":\"not-mounted\"")) << json.out;

  // The replicas do not run: only their finding is a FAIL.
  const Outcome doctor = Call(RunDoctor, {directory_});
  EXPECT_EQ(doctor.code, kExitFailed);
  EXPECT_TRUE(Contains(doctor.out, "FAIL  replica 127.0.0.1:7411")) << doctor.out;
  EXPECT_TRUE(Contains(doctor.out, "OK    stable log")) << doctor.out;
}

TEST_F(CommandsTest, InitWritesTheKeysThatDoctorChecks) {
  const std::string ca = directory_ + "-ca";
  ASSERT_EQ(Call(RunKeys, {"init", ca, "replica/r1=127.0.0.1", "client/here"}).code, kExitOk);
  const Outcome replica = InitSmall({"--keys", ca + "/replica-r1.pem"});
  EXPECT_EQ(replica.code, kExitUsage);
  EXPECT_TRUE(Contains(replica.err, "which may not call")) << replica.err;
  EXPECT_EQ(InitSmall({"--keys", ca + "/none.pem"}).code, kExitUsage);
  EXPECT_FALSE(HasVolume());
  const std::string file = ca + "/client-here.pem";
  ASSERT_EQ(InitSmall({"--keys", std::filesystem::relative(file)}).code, kExitOk);
  EXPECT_EQ(ReadOfflineStatus(directory_)->config.keys, file) << "absolute";
  const Outcome good = Call(RunDoctor, {directory_});
  EXPECT_TRUE(Contains(good.out, "OK    keys: client/here, valid until")) << good.out;
  EXPECT_TRUE(Contains(good.out, "OK    authority: Salius CA, valid until")) << good.out;
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  const Outcome readable = Call(RunDoctor, {directory_});
  EXPECT_EQ(readable.code, kExitFailed);
  EXPECT_TRUE(Contains(readable.out, "FAIL  keys: " + file)) << readable.out;
  EXPECT_TRUE(Contains(readable.out, "chmod 600")) << readable.out;
  EXPECT_TRUE(Contains(readable.out, "not asked: this host's keys cannot be used")) << readable.out;
  // An option wins over the volume's.
  EXPECT_FALSE(Contains(Call(RunDoctor, {directory_, "--keys", ""}).out, "keys:"));
  // On a replica's host, without a volume.
  const Outcome server = Call(RunDoctor, {"--keys", ca + "/replica-r1.pem"});
  EXPECT_TRUE(Contains(server.out, "OK    keys: replica/r1 for 127.0.0.1, valid until"))
      << server.out;
  std::filesystem::remove_all(ca);
}

TEST_F(CommandsTest, AcksDefaultToEveryReplica) {
  ASSERT_EQ(InitSmall().code, kExitOk);
  EXPECT_EQ(ReadOfflineStatus(directory_)->config.acks, 2u);
}

TEST_F(CommandsTest, LocalVolumeNeedsNoReplica) {
  const Outcome init = Init({"--local", "--log-max", "4MiB", "--ballast", "0"});
  ASSERT_EQ(init.code, kExitOk) << init.err;
  EXPECT_TRUE(ReadOfflineStatus(directory_)->config.replicas.empty());
}

TEST_F(CommandsTest, AcksZeroOrMoreThanReplicasAreRefused) {
  const Outcome zero = InitSmall({"--acks", "0"});
  EXPECT_EQ(zero.code, kExitUsage);
  EXPECT_TRUE(Contains(zero.err, "--acks \"0\"")) << zero.err;
  const Outcome three = InitSmall({"--acks", "3"});
  EXPECT_EQ(three.code, kExitUsage);
  EXPECT_TRUE(Contains(three.err, "more than the 2 replicas")) << three.err;
  EXPECT_FALSE(HasVolume());
}

TEST_F(CommandsTest, ReplicasOrLocalMustBeGivenButNotBoth) {
  EXPECT_EQ(Init({}).code, kExitUsage);
  EXPECT_EQ(Init({"--local", "--replicas", "127.0.0.1:7411"}).code, kExitUsage);
}

TEST_F(CommandsTest, ReplicaThatDoesNotResolveIsRefused) {
  const Outcome outcome = Init({"--replicas", "no-such-host.invalid:7400"});
  EXPECT_EQ(outcome.code, kExitUnreachable);
  EXPECT_TRUE(Contains(outcome.err, "no-such-host.invalid")) << outcome.err;
  EXPECT_FALSE(HasVolume());
}

TEST_F(CommandsTest, BadPortAndTheSameReplicaTwiceAreRefused) {
  EXPECT_EQ(Init({"--replicas", "127.0.0.1:"}).code, kExitUsage);
  const Outcome twice = Init({"--replicas", "127.0.0.1:7400,localhost:7400"});
  EXPECT_EQ(twice.code, kExitUsage);
  EXPECT_TRUE(Contains(twice.err, "are the same")) << twice.err;
}

TEST_F(CommandsTest, StableLogTooSmallForTheLogIsRefused) {
  const Outcome outcome = Init({"--local", "--log-max", "64MiB", "--stable-log", "8MiB"});
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_FALSE(HasVolume());
}

TEST_F(CommandsTest, MissingDirectoryIsRefused) {
  const Outcome outcome = Call(RunInit, {directory_ + "/none", "--local"});
  EXPECT_EQ(outcome.code, kExitNotFound);
  EXPECT_TRUE(Contains(outcome.err, "none")) << outcome.err;
  EXPECT_EQ(Call(RunStatus, {directory_ + "/none"}).code, kExitNotFound);
  EXPECT_EQ(Call(RunDoctor, {directory_ + "/none"}).code, kExitNotFound);
}

TEST_F(CommandsTest, ReplicaWithoutAPortHasTheOneThatSaliusReplicaTakes) {
  const Outcome outcome = InitOf("127.0.0.1,127.0.0.3:7411");
  ASSERT_EQ(outcome.code, kExitOk) << outcome.err;
  EXPECT_EQ(ReadOfflineStatus(directory_)->config.replicas,
            (Words{"127.0.0.1:7400", "127.0.0.3:7411"}));
}

TEST_F(CommandsTest, InitWarnsOfReplicasOnThisHostUnlessTheyAreMeant) {
  const Outcome warned = InitSmall();
  ASSERT_EQ(warned.code, kExitOk);
  EXPECT_TRUE(Contains(warned.err, "replicas 127.0.0.1:7411, 127.0.0.1:7412 are on this host"))
      << warned.err;
  EXPECT_TRUE(Contains(warned.err, "allow_same_host")) << warned.err;
  EXPECT_TRUE(Contains(Call(RunDoctor, {directory_}).out, "WARN  hosts: replicas 127.0.0.1:7411"));
  std::filesystem::remove_all(directory_);
  std::filesystem::create_directory(directory_);
  const Outcome meant = InitSmall({"--allow-same-host"});
  ASSERT_EQ(meant.code, kExitOk);
  EXPECT_EQ(meant.err, "");
  EXPECT_TRUE(ReadOfflineStatus(directory_)->config.allow_same_host);
  EXPECT_TRUE(Contains(Call(RunDoctor, {directory_}).out, "OK    hosts: replicas 127.0.0.1:7411"));
}

// Runs `command` as an ordinary user.
int AsNobody(int (*command)(absl::Span<const std::string>), const Words& words) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0) _exit(100);
    _exit(command(words));
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WEXITSTATUS(status);
}

TEST_F(CommandsTest, OrdinaryUserMakesADirectVolumeInHisDirectory) {
  const Words words = {directory_, "--direct", "--replicas", "127.0.0.1:7411"};
  EXPECT_EQ(AsNobody(RunInit, words), kExitPermission);  // mode 0700, of another user
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  EXPECT_EQ(AsNobody(RunInit, words), kExitUnsuitable);  // of another user
  EXPECT_FALSE(HasVolume());
  ASSERT_EQ(chown(directory_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(Call(RunInit, words).code, kExitUnsuitable);  // root is not its owner
  EXPECT_EQ(AsNobody(RunInit, words), kExitOk);
  struct stat attr {};
  ASSERT_EQ(stat((directory_ + "/.salius").c_str(), &attr), 0);
  EXPECT_EQ(attr.st_mode & 07777u, 0700u);
  EXPECT_EQ(attr.st_uid, 65534u);
  EXPECT_EQ(AsNobody(RunStatus, {directory_}), kExitNotMounted);
  EXPECT_EQ(AsNobody(RunInit, words), kExitExists);
}

TEST_F(CommandsTest, DirectVolumeTakesNoOptionOfTheMount) {
  for (const Words& option :
       {Words{"--stable-log", "8MiB"}, Words{"--ballast", "0"}, Words{"--names", "wait"}}) {
    Words words = {"--direct", "--local"};
    words.insert(words.end(), option.begin(), option.end());
    const Outcome refused = Init(words);
    EXPECT_EQ(refused.code, kExitUsage);
    EXPECT_TRUE(Contains(refused.err, option[0] + " has no meaning in a direct volume"))
        << refused.err;
  }
  EXPECT_FALSE(HasVolume());
  const Outcome made = Init({"--direct", "--local"});
  EXPECT_EQ(made.code, kExitOk) << made.err;
  EXPECT_TRUE(Contains(made.out, "salius-run --direct")) << made.out;
}

TEST_F(CommandsTest, DirectVolumeOnTmpfsIsRefused) {
  ASSERT_EQ(mount("none", directory_.c_str(), "tmpfs", 0, nullptr), 0);
  const Outcome refused = Init({"--direct", "--local"});
  EXPECT_EQ(refused.code, kExitUnsuitable);
  EXPECT_TRUE(Contains(refused.err, "is on tmpfs")) << refused.err;
  EXPECT_EQ(umount(directory_.c_str()), 0);
}

TEST_F(CommandsTest, ProposedCommandsHaveQuotedPaths) {
  const std::string spaced = directory_ + "/a b'c";
  std::filesystem::create_directory(spaced);
  const std::string quoted = "'" + directory_ + "/a b'\\''c'";
  const Outcome none = Call(RunStatus, {spaced});
  EXPECT_TRUE(Contains(none.err, "salius init " + quoted + "`")) << none.err;
  EXPECT_TRUE(Contains(Call(RunDoctor, {spaced}).out, "salius init " + quoted));
  const Outcome init = Call(RunInit, {spaced, "--local", "--log-max", "4MiB", "--ballast", "0"});
  EXPECT_TRUE(Contains(init.out, "salius doctor " + quoted + "; salius-mount " + quoted))
      << init.out;
}

TEST_F(CommandsTest, DirectoriesOfTheSystemBecomeNoVolume) {
  for (const char* const place : {"/", "/etc", "/usr/lib", "/var"}) {
    const Outcome status = Call(RunStatus, {place});
    EXPECT_EQ(status.code, kExitNotFound) << place;
    EXPECT_FALSE(Contains(status.err, "salius init")) << status.err;
    EXPECT_FALSE(Contains(Call(RunDoctor, {place}).out, "salius init")) << place;
    const Outcome init = Call(RunInit, {place, "--local"});
    EXPECT_EQ(init.code, kExitUnsuitable) << init.err;
    EXPECT_FALSE(std::filesystem::exists(std::string(place) + "/.salius"));
  }
}

TEST_F(CommandsTest, OtherUserLearnsThatOnlyRootMayAsk) {
  ASSERT_EQ(InitSmall().code, kExitOk);
  std::filesystem::permissions(directory_, std::filesystem::perms::all);
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(100);
    _exit(RunStatus(Words{directory_}));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), kExitPermission);
}

TEST_F(CommandsTest, StatusShowsRecoveryLossUntilAcknowledged) {
  ASSERT_EQ(InitSmall().code, kExitOk);
  EXPECT_TRUE(Contains(Call(RunAcknowledge, {directory_}).out, "no recovery gave anything up"));
  RecoveryNotes notes;
  RecoveryNote note;
  note.epoch = 4;
  note.given_up = {{17, 19}};
  notes.Put(note);
  const auto salius = OpenAt(AT_FDCWD, directory_ + "/.salius", O_RDONLY | O_DIRECTORY);
  ASSERT_TRUE(salius.ok());
  ASSERT_TRUE(WriteRecoveryNotes(LinuxBacking(), salius->get(), notes).ok());
  const Outcome before = Call(RunStatus, {directory_});
  EXPECT_EQ(before.code, kExitGivenUp);
  EXPECT_TRUE(Contains(before.out, "GIVEN UP:     records 17-19")) << before.out;
  EXPECT_TRUE(Contains(Call(RunDoctor, {directory_}).out, "WARN  recovery"));
  EXPECT_EQ(Call(RunAcknowledge, {directory_}).code, kExitOk);
  const Outcome after = Call(RunStatus, {directory_});
  EXPECT_EQ(after.code, kExitNotMounted);
  EXPECT_TRUE(Contains(after.out, "records 17-19 (acknowledged)")) << after.out;
}

TEST_F(CommandsTest, StatusTellsABusyHolderFromOneThatIsStopped) {
  ASSERT_EQ(InitSmall().code, kExitOk);
  const pid_t holder = fork();
  if (holder == 0) {
    const int fd = open((directory_ + "/.salius/lock").c_str(), O_RDWR);
    if (flock(fd, LOCK_EX) != 0) _exit(1);
    for (;;) pause();
  }
  const auto code = [&] { return Call(RunStatus, {directory_, "--json"}); };
  while (code().code == kExitNotMounted) {
  }
  EXPECT_EQ(code().code, kExitBusy);
  ASSERT_EQ(kill(holder, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(holder, &status, WUNTRACED), holder);
  EXPECT_EQ(code().code, kExitUnreachable);
  EXPECT_TRUE(Contains(code().out, "\"health\":\"hung\"")) << code().out;
  ASSERT_EQ(kill(holder, SIGKILL), 0);
  ASSERT_EQ(waitpid(holder, &status, 0), holder);
}

TEST_F(CommandsTest, SecondInitIsRefusedAndChangesNothing) {
  ASSERT_EQ(InitSmall().code, kExitOk);
  const VolumeId before = ReadOfflineStatus(directory_)->config.volume;
  EXPECT_EQ(InitSmall().code, kExitExists);
  EXPECT_EQ(ReadOfflineStatus(directory_)->config.volume, before);
}

TEST_F(CommandsTest, StableLogThatDoesNotFitIsRefusedAndLeavesNothing) {
  const std::string mountpoint = directory_ + "/small";
  std::filesystem::create_directory(mountpoint);
  ASSERT_EQ(mount("tmpfs", mountpoint.c_str(), "tmpfs", 0, "size=4m"), 0) << errno;
  const Outcome outcome = Call(RunInit, {mountpoint, "--local", "--log-max", "4MiB"});
  const bool left = std::filesystem::exists(mountpoint + "/.salius");
  ASSERT_EQ(umount2(mountpoint.c_str(), MNT_DETACH), 0);
  EXPECT_EQ(outcome.code, kExitNoSpace) << outcome.err;
  EXPECT_FALSE(left);
}

TEST_F(CommandsTest, ReadOnlyDirectoryIsRefused) {
  const std::string mountpoint = directory_ + "/ro";
  std::filesystem::create_directory(mountpoint);
  ASSERT_EQ(mount("tmpfs", mountpoint.c_str(), "tmpfs", MS_RDONLY, nullptr), 0) << errno;
  const Outcome init = Call(RunInit, {mountpoint, "--local"});
  const Outcome doctor = Call(RunDoctor, {mountpoint});
  ASSERT_EQ(umount2(mountpoint.c_str(), MNT_DETACH), 0);
  EXPECT_EQ(init.code, kExitUnsuitable) << init.err;
  EXPECT_EQ(doctor.code, kExitFailed);
  EXPECT_TRUE(Contains(doctor.out, "FAIL  writable")) << doctor.out;
}

TEST_F(CommandsTest, DirectoryOnFuseIsRefused) {
  const std::string backing = directory_ + "/backing", mountpoint = directory_ + "/fuse";
  std::filesystem::create_directory(backing);
  std::filesystem::create_directory(mountpoint);
  const std::string command =
      "exec tests/bench/mount_floor --replicas 0 " + backing + " " + mountpoint;
  FILE* const server = popen(command.c_str(), "r");
  char line[16] = "";
  ASSERT_NE(fgets(line, sizeof(line), server), nullptr) << "it did not mount";
  ASSERT_STREQ(line, "ready\n");
  const Outcome init = Call(RunInit, {mountpoint, "--local"});
  const Outcome doctor = Call(RunDoctor, {mountpoint});
  ASSERT_EQ(umount2(mountpoint.c_str(), MNT_DETACH), 0);
  EXPECT_EQ(pclose(server), 0);
  EXPECT_EQ(init.code, kExitUnsuitable) << init.err;
  EXPECT_TRUE(std::filesystem::is_empty(backing));
  EXPECT_EQ(doctor.code, kExitFailed);
  EXPECT_TRUE(Contains(doctor.out, "FAIL  file system: FUSE")) << doctor.out;
}

TEST_F(CommandsTest, StatusNamesTheProcessThatHoldsTheLock) {
  ASSERT_EQ(InitSmall().code, kExitOk);
  const auto lock = OpenAt(AT_FDCWD, directory_ + "/.salius/lock", O_RDWR);
  ASSERT_TRUE(lock.ok());
  ASSERT_EQ(flock(lock->get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(ReadOfflineStatus(directory_)->in_use_by, "pid " + std::to_string(getpid()));
}

TEST_F(CommandsTest, WatchRepeatsUntilStopped) {
  ASSERT_EQ(InitSmall().code, kExitOk);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl("client/cli/salius", "salius", "status", directory_.c_str(), "--watch", "--json",
          nullptr);
    _exit(127);
  }
  close(ends[1]);
  FILE* const out = fdopen(ends[0], "r");
  char line[4096];
  for (int i = 0; i < 2; ++i) {
    ASSERT_NE(fgets(line, sizeof(line), out), nullptr);
    EXPECT_TRUE(Contains(line, "\"mounted\":false")) << line;
  }
  ASSERT_EQ(kill(child, SIGTERM), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "it ends with exit code 0";
  fclose(out);
}

TEST_F(CommandsTest, ProgramWithoutAKnownCommandExplainsItself) {
  EXPECT_EQ(WEXITSTATUS(system("client/cli/salius >/dev/null 2>&1")), kExitUsage);
  EXPECT_EQ(WEXITSTATUS(system("client/cli/salius no-such-thing >/dev/null 2>&1")), kExitUsage);
  EXPECT_EQ(system("client/cli/salius --help >/dev/null"), 0);
  EXPECT_EQ(system("client/cli/salius --version | grep -qx 'salius [0-9.]*'"), 0);
}

TEST_F(CommandsTest, StatusOfAPlainDirectorySaysThatItIsNoVolume) {
  const Outcome outcome = Call(RunStatus, {directory_});
  EXPECT_EQ(outcome.code, kExitNotFound);
  EXPECT_TRUE(Contains(outcome.err, "salius init")) << outcome.err;
}

TEST_F(CommandsTest, InitIsNotAdvisedWhereAVolumeLostItsDirectory) {
  ASSERT_EQ(InitSmall().code, kExitOk);
  std::filesystem::remove_all(directory_ + "/.salius");
  EXPECT_EQ(Call(RunStatus, {directory_}).code, kExitDamaged);
  const Outcome doctor = Call(RunDoctor, {directory_});
  EXPECT_EQ(doctor.code, kExitFailed);
  EXPECT_TRUE(Contains(doctor.out, "FAIL  volume")) << doctor.out;
  EXPECT_FALSE(Contains(doctor.out, "make one")) << doctor.out;
  EXPECT_EQ(InitSmall().code, kExitUnsuitable);
}

TEST_F(CommandsTest, LostStateIsAnErrorNotANewVolume) {
  ASSERT_EQ(InitSmall().code, kExitOk);
  std::filesystem::remove(directory_ + "/.salius/state");
  EXPECT_EQ(Call(RunStatus, {directory_}).code, kExitNotFound);
  const Outcome doctor = Call(RunDoctor, {directory_});
  EXPECT_EQ(doctor.code, kExitFailed);
  EXPECT_TRUE(Contains(doctor.out, "FAIL  state")) << doctor.out;
}

TEST_F(CommandsTest, DamagedStateIsReportedAsDamage) {
  ASSERT_EQ(InitSmall().code, kExitOk);
  std::ofstream(directory_ + "/.salius/state", std::ios::trunc) << std::string(8192, 'x');
  EXPECT_EQ(Call(RunStatus, {directory_}).code, kExitDamaged);
}

TEST_F(CommandsTest, StatusOfAVolumeNotMountedHereByItsUuidSaysSo) {
  const Outcome outcome = Call(RunStatus, {"00112233-4455-6677-8899-aabbccddeeff"});
  EXPECT_EQ(outcome.code, kExitNotFound);
  EXPECT_TRUE(Contains(outcome.err, "not mounted here")) << outcome.err;
}

TEST_F(CommandsTest, StatusOfASilentReplicaIsUnreachable) {
  EXPECT_EQ(Call(RunStatus, {"--replica", "127.0.0.1:1"}).code, kExitUnreachable);
  EXPECT_EQ(Call(RunStatus, {"--replica", "127.0.0.1:1", directory_}).code, kExitUsage);
}

TEST_F(CommandsTest, BenchMeasuresPathAndFloorsAndCleansUp) {
  const Words common = {directory_, "--floor-dir", directory_, "--seconds", "1",
                        "--rounds", "2",           "--span",   "64KiB",     "--replicas",
                        "3",        "--acks",      "2"};
  const Outcome text = Call(RunBench, common);
  ASSERT_EQ(text.code, kExitOk) << text.err;
  for (const char* const part : {"path", "floor-udp", "floor-dir", "ratio", "p99.9"}) {
    EXPECT_TRUE(Contains(text.out, part)) << part << "\n" << text.out;
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(CommandsTest, BenchAppendsWithSeveralWritersAndPrintsJson) {
  const Outcome json =
      Call(RunBench, {directory_, "--append", "--writers", "2", "--seconds", "1", "--rounds", "1",
                      "--replicas", "0", "--size", "512", "--json"});
  ASSERT_EQ(json.code, kExitOk) << json.err;
  EXPECT_TRUE(Contains(json.out, "\"append\":true")) << json.out;
  EXPECT_TRUE(Contains(json.out, "\"name\":\"path\"")) << json.out;
  EXPECT_FALSE(Contains(json.out, "floor-udp")) << json.out;
}

TEST_F(CommandsTest, BenchRefusesMeaninglessOptions) {
  EXPECT_EQ(Call(RunBench, {directory_, "--size", "0"}).code, kExitUsage);
  EXPECT_EQ(Call(RunBench, {directory_, "--size", "8192", "--span", "4096"}).code, kExitUsage);
  EXPECT_EQ(Call(RunBench, {directory_, "--replicas", "1", "--acks", "2"}).code, kExitUsage);
  EXPECT_EQ(Call(RunBench, {directory_, "--pin", "a"}).code, kExitUsage);
  EXPECT_EQ(Call(RunBench, {directory_ + "/none"}).code, kExitNotFound);
  const std::string file = directory_ + "/file";
  std::ofstream(file) << "precious";
  EXPECT_EQ(Call(RunBench, {file}).code, kExitUsage) << "a file of someone's is not overwritten";
}

TEST(ForgetCommandTest, ReplicaWithoutPortIsAskedAtTheDefaultPort) {
  const Outcome outcome =
      Call(RunForget, {"8e2b9d77-68b3-4eeb-9e4c-35edd0d5366a", "--replica", "127.0.0.1"});
  EXPECT_NE((outcome.out + outcome.err).find("127.0.0.1:7400"), std::string::npos)
      << outcome.out << outcome.err;
}

TEST(ForgetCommandTest, ReplicaThatIsNoAddressIsRefused) {
  const Outcome outcome =
      Call(RunForget, {"8e2b9d77-68b3-4eeb-9e4c-35edd0d5366a", "--replica", "a:b:c"});
  EXPECT_EQ(outcome.code, kExitUsage);
}

}  // namespace
}  // namespace salius::cli
