// Whole recoveries of direct volumes (docs/recovery.md, cases R83 to R95): in memory, on ext4 and on
// xfs. In memory also with a power cut after each step.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/check.h"
#include "common/host.h"
#include "gtest/gtest.h"
#include "log/applied_mark.h"
#include "log/state_file.h"
#include "recovery/direct/direct_plan.h"
#include "recovery/direct/pinned_log.h"
#include "recovery/recovery.h"
#include "storage/backing.h"
#include "storage/direct_id.h"
#include "storage/volume_config.h"
#include "tests/unit/recovery/fake_replica.h"
#include "tests/unit/storage/backing_worlds.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius::recovery {
namespace {

constexpr Epoch kEpoch = 7;
constexpr FileId kFile = 50;

// A direct volume with a file "f", whose session has ended without a clean note, and its two
// replicas.
class BrokenDirect {
 public:
  BrokenDirect(Backing& backing, int root) : backing_(backing), root_(root) {
    config_ = DefaultVolumeConfig(VolumeKind::kDirect);
    config_.volume = TestVolume();
    config_.replicas = {"a:1", "b:1"};
    config_.acks = 2;
    SALIUS_CHECK_OK(CreateVolume(backing_, Dir().get(), "/volume", config_));
    AddFile("f", kFile);
    options_.connector = &net_;
    options_.rpc_timeout_ms = 200;
    options_.fence_timeout_ms = 500;
    options_.fence_grace_ms = 100;
    options_.local_fence_timeout_ms = 200;
  }

  // Makes a file of ten bytes with the id, on the disk.
  void AddFile(const std::string& name, FileId id, int64_t inode_distance = 0) {
    SALIUS_CHECK_OK(backing_.MakeNode(root_, name, S_IFREG | 0644, 0));
    const BackingFd file = Open(name, O_RDWR);
    SALIUS_CHECK_OK(backing_.Pwrite(file.get(), "0123456789", 0));
    SetId(file.get(), id, inode_distance);
    SALIUS_CHECK_OK(backing_.Fsync(file.get()));
    SALIUS_CHECK_OK(backing_.Fsync(Dir().get()));
  }
  void SetId(int fd, FileId id, int64_t inode_distance) {
    DirectId value;
    value.file_id = id;
    value.inode = backing_.StatAt(fd, "")->st_ino + static_cast<uint64_t>(inode_distance);
    std::copy_n(config_.volume.bytes.begin(), sizeof(value.volume), value.volume);
    std::array<char, kDirectIdBytes> bytes;
    EncodeDirectId(value, reinterpret_cast<uint8_t*>(bytes.data()));
    SALIUS_CHECK_OK(backing_.SetXattr(fd, kDirectIdXattr, {bytes.data(), bytes.size()}));
  }
  // Notes an open session, and gives the replicas the records of `stamper`.
  void LeaveOpen(const Stamper& stamper, Mode mode = Mode::kReplicated) {
    const auto dir = OpenDir();
    auto file = StateFile::Open(backing_, dir->salius_fd, kStateFileName);
    SALIUS_CHECK_OK(file);
    VolumeState state = file->state();
    state.open = true;
    state.epoch = kEpoch;
    state.mode = mode;
    if (mode == Mode::kReplicated) state.members = {{"a:1", 11, 1}, {"b:1", 12, 1}};
    state.boot_id = boot_id_;
    if (boot_id_[0] == '0') state.mount_id = 0;
    state.file_id_limit = 1000;
    SALIUS_CHECK_OK(file->Write(state));
    const RecordSet set = SetOf(stamper.all());
    for (const Member& member : {Member{"a:1", 11, 1}, Member{"b:1", 12, 1}}) {
      FakeReplica& replica = net_.at(member.address);
      replica.incarnation = member.incarnation;
      replica.epoch = kEpoch;
      for (const RecordView& record : set.views()) {
        replica.records[record.seq()] = std::string(record.encoded());
      }
    }
  }
  // Has LeaveOpen() note a session of this boot and mount.
  void SameLife() { boot_id_ = *BootId(); }
  absl::Status Recover() {
    auto dir = OpenDir();
    SALIUS_CHECK_OK(dir);
    report_ = RecoveryReport();
    options_.partial_report = &report_;
    return salius::Recover(*dir, options_).status();
  }
  absl::StatusOr<VolumeDir> OpenDir() {
    return VolumeDir::Open(backing_, Dir(), "/volume", /*lock=*/true);
  }
  std::string Content(const std::string& name) {
    const BackingFd fd = Open(name, O_RDONLY);
    std::string content(100, '\0');
    auto got = backing_.Pread(fd.get(), content.data(), content.size(), 0);
    SALIUS_CHECK_OK(got);
    content.resize(*got);
    return content;
  }
  VolumeState State() {
    const auto dir = OpenDir();
    auto file = StateFile::Open(backing_, dir->salius_fd, kStateFileName);
    SALIUS_CHECK_OK(file);
    return file->state();
  }
  bool HasPinnedLog() {
    const auto dir = OpenDir();
    return backing_.StatAt(dir->salius_fd, kStableLogFileName).ok();
  }
  BackingFd Open(const std::string& name, int flags) {
    auto fd = backing_.OpenAt(root_, name, flags);
    SALIUS_CHECK_OK(fd);
    return std::move(*fd);
  }
  void LoseReplicas() { net_.at("a:1").unreachable = net_.at("b:1").unreachable = true; }
  RecoveryOptions& options() { return options_; }
  const RecoveryReport& report() const { return report_; }
  FakeConnector& net() { return net_; }

 private:
  BackingFd Dir() { return Open(".", O_RDONLY | O_DIRECTORY); }

  Backing& backing_;
  const int root_;
  std::string boot_id_ = "00000000-0000-0000-0000-000000000000";
  VolumeConfig config_;
  FakeConnector net_;
  RecoveryOptions options_;
  RecoveryReport report_;
};

// Returns the records of a session: it leaves "abc34XY" in the file.
Stamper Session() {
  Stamper s(kEpoch);
  s.Write(kFile, 0, "abc");
  s.Write(kFile, 5, "XYZ");
  s.Truncate(kFile, 7);
  return s;
}
constexpr char kReplayed[] = "abc34XY";
constexpr char kUnchanged[] = "0123456789";

class DirectRecoveryTest : public BackingTest {};
SALIUS_IN_EVERY_WORLD(DirectRecoveryTest);

TEST_P(DirectRecoveryTest, CleanVolumeIsUnchanged) {
  BrokenDirect volume(backing(), root());
  {
    const auto dir = volume.OpenDir();
    ASSERT_OK(MakePinnedLog(backing(), dir->salius_fd, TestVolume(), {}).status());
  }
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.report().outcome, RecoveryOutcome::kClean);
  EXPECT_EQ(volume.net().at("a:1").fences, 0);
  EXPECT_FALSE(volume.HasPinnedLog());  // R86
}

TEST_P(DirectRecoveryTest, RecordsOfTheReplicasComeBack) {
  BrokenDirect volume(backing(), root());
  volume.LeaveOpen(Session());
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.Content("f"), kReplayed);
  EXPECT_EQ(volume.report().outcome, RecoveryOutcome::kRecovered);
  EXPECT_TRUE(volume.report().direct);
  EXPECT_EQ(volume.report().files_changed, 1u);
  EXPECT_EQ(volume.report().bytes_written, 6u);
  EXPECT_FALSE(volume.State().open);
  EXPECT_GT(volume.State().epoch, kEpoch);
  EXPECT_EQ(volume.State().recovered_seq, 3u);
  EXPECT_FALSE(volume.HasPinnedLog());
}

TEST_P(DirectRecoveryTest, TooFewReplicasAreUnavailable) {
  BrokenDirect volume(backing(), root());
  volume.LeaveOpen(Session());
  volume.LoseReplicas();
  EXPECT_EQ(volume.Recover().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(volume.State().open);
  EXPECT_EQ(volume.Content("f"), kUnchanged);
}

// R41: every acknowledged write is on this disk, and the replicas may hold older records.
TEST_P(DirectRecoveryTest, LocalNoteReplaysNothing) {
  BrokenDirect volume(backing(), root());
  volume.LeaveOpen(Session(), Mode::kLocal);
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.Content("f"), kUnchanged);
  EXPECT_EQ(volume.report().records, 0u);
  EXPECT_FALSE(volume.State().open);
}

TEST_P(DirectRecoveryTest, LocalNoteNeedsNoReplica) {
  BrokenDirect volume(backing(), root());
  volume.LeaveOpen(Session(), Mode::kLocal);
  volume.LoseReplicas();
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.Content("f"), kUnchanged);
  EXPECT_FALSE(volume.State().open);
}

TEST_P(DirectRecoveryTest, RecordsUpToTheOnDiskMarkAreSkipped) {  // R89
  BrokenDirect volume(backing(), root());
  Stamper s(kEpoch);
  s.Write(kFile, 0, "old");
  s.Truncate(kFile, 3);
  s.Write(60, 0, "of another file");
  s.OnDisk(kFile, 2);
  s.Write(kFile, 9, "!");
  volume.LeaveOpen(s);
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.Content("f"), "012345678!");
  EXPECT_EQ(volume.report().records_skipped, 3u);  // two on disk, one of a file that is gone
  EXPECT_EQ(volume.report().files_gone, 1u);
}

TEST_P(DirectRecoveryTest, FileThatIsGoneIsSkippedAndCounted) {  // R90
  BrokenDirect volume(backing(), root());
  Stamper s = Session();
  s.Write(60, 0, "gone");
  s.Write(60, 4, "gone");
  volume.LeaveOpen(s);
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.Content("f"), kReplayed);
  EXPECT_EQ(volume.report().files_gone, 1u);
  EXPECT_EQ(volume.report().records_skipped, 2u);
  EXPECT_TRUE(absl::StrContains(RecoveryReportText(volume.report()), "1 gone"));
}

TEST_P(DirectRecoveryTest, IdOfAnotherInodeIsNotBelieved) {  // R91
  BrokenDirect volume(backing(), root());
  volume.AddFile("copy", 60, /*inode_distance=*/1);
  Stamper s(kEpoch);
  s.Write(60, 0, "WRONG");
  volume.LeaveOpen(s);
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.Content("copy"), kUnchanged);
  EXPECT_EQ(volume.report().files_gone, 1u);
}

TEST_P(DirectRecoveryTest, CopyBesideItsOriginalIsLeftAlone) {  // R91
  BrokenDirect volume(backing(), root());
  volume.AddFile("a-copy", kFile, /*inode_distance=*/1);
  volume.LeaveOpen(Session());
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.Content("f"), kReplayed);
  EXPECT_EQ(volume.Content("a-copy"), kUnchanged);
}

TEST_P(DirectRecoveryTest, SecondNameOfAFileIsNoSecondFile) {
  BrokenDirect volume(backing(), root());
  SALIUS_CHECK_OK(backing().LinkFd(volume.Open("f", O_RDONLY).get(), root(), "g"));
  volume.LeaveOpen(Session());
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.Content("g"), kReplayed);
}

TEST_P(DirectRecoveryTest, TwoFilesWithOneIdAreDataLossUntilOneIsNamed) {  // R92
  BrokenDirect volume(backing(), root());
  volume.AddFile("second", kFile);
  volume.LeaveOpen(Session());
  const absl::Status refused = volume.Recover();
  EXPECT_EQ(refused.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(refused.message(), "\"second\"")) << refused;
  EXPECT_EQ(volume.Content("f"), kUnchanged);
  EXPECT_EQ(volume.Content("second"), kUnchanged);
  EXPECT_TRUE(volume.State().open);
  SALIUS_CHECK_OK(backing().RemoveXattr(volume.Open("second", O_RDWR).get(), kDirectIdXattr));
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.Content("f"), kReplayed);
  EXPECT_EQ(volume.Content("second"), kUnchanged);
}

TEST_P(DirectRecoveryTest, ForceTakesNeitherOfTwoFilesWithOneId) {  // R92
  BrokenDirect volume(backing(), root());
  volume.AddFile("second", kFile);
  volume.LeaveOpen(Session());
  volume.options().force = true;
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.Content("f"), kUnchanged);
  EXPECT_EQ(volume.Content("second"), kUnchanged);
  ASSERT_EQ(volume.report().missing.size(), 1u);
  EXPECT_FALSE(volume.report().given_up.empty());
}

TEST_P(DirectRecoveryTest, RecordOfAnotherKindIsDataLossAndChangesNothing) {  // R87
  for (const Op op :
       {Op::kFallocate, Op::kSetAttr, Op::kCreate, Op::kUnlink, Op::kAdopt, Op::kCancel}) {
    Stamper s = Session();
    s.Stamp(op, 60, "");
    const RecordSet set = SetOf(s.all());
    std::vector<const RecordView*> records;
    for (const RecordView& record : set.views()) records.push_back(&record);
    EXPECT_EQ(PlanDirect(records).status().code(), absl::StatusCode::kDataLoss) << OpName(op);
  }
  BrokenDirect volume(backing(), root());
  Stamper s = Session();
  s.CreateFile(60, kRootFileId, "new");
  volume.LeaveOpen(s);
  EXPECT_EQ(volume.Recover().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(volume.Content("f"), kUnchanged);
  EXPECT_FALSE(volume.HasPinnedLog());
  EXPECT_TRUE(volume.State().open);
}

TEST_P(DirectRecoveryTest, VoidRecordHasNoEffect) {  // R88
  BrokenDirect volume(backing(), root());
  Stamper s(kEpoch);
  s.Write(kFile, 0, "abc");
  s.OnDisk(kNoFileId, 0);
  s.Write(kFile, 5, "XYZ");
  s.Truncate(kFile, 7);
  volume.LeaveOpen(s);
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.Content("f"), kReplayed);
}

TEST_P(DirectRecoveryTest, DryRunChangesNothing) {
  BrokenDirect volume(backing(), root());
  volume.LeaveOpen(Session());
  volume.options().dry_run = true;
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.report().outcome, RecoveryOutcome::kDryRun);
  ASSERT_EQ(volume.report().plan.size(), 1u);
  EXPECT_TRUE(absl::StrContains(volume.report().plan[0], "\"f\"")) << volume.report().plan[0];
  EXPECT_EQ(volume.report().bytes_written, 6u);
  EXPECT_EQ(volume.Content("f"), kUnchanged);
  EXPECT_FALSE(volume.HasPinnedLog());
  EXPECT_TRUE(volume.State().open);
}

TEST_P(DirectRecoveryTest, UntilLeavesRecordsOutOnlyWithForce) {
  BrokenDirect volume(backing(), root());
  volume.LeaveOpen(Session());
  volume.options().until = 1;
  EXPECT_EQ(volume.Recover().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(volume.Content("f"), kUnchanged);
  volume.options().force = true;
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.Content("f"), "abc3456789");
}

// R83. Without a mark of the session it is not known whether the page cache is to be believed.
TEST_P(DirectRecoveryTest, SameLifeWithoutAMarkIsReplayed) {
  BrokenDirect volume(backing(), root());
  volume.SameLife();
  volume.LeaveOpen(Session());
  ASSERT_OK(volume.Recover());
  EXPECT_FALSE(volume.report().same_life);
  EXPECT_EQ(volume.Content("f"), kReplayed);
}

// A power cut after any step: the next run ends in the same bytes. Once the decision is pinned, it
// asks no replica.
TEST(DirectPowerCutTest, RecoveryAfterAnyStepEndsTheSame) {
  bool cut = true;
  int steps = 0;
  bool pinned_seen = false;
  for (; cut; ++steps) {
    MemoryBacking backing;
    BrokenDirect volume(backing, backing.root());
    volume.AddFile("second", 51);
    Stamper s = Session();
    s.Write(51, 0, "2nd");
    volume.LeaveOpen(s);
    int left = steps;
    bool pinned = false;
    volume.options().step_hook = [&](RecoveryStep step) {
      pinned = pinned || step == RecoveryStep::kPinned;
      return left-- == 0 ? absl::AbortedError("power cut") : absl::OkStatus();
    };
    cut = absl::IsAborted(volume.Recover());
    backing.PowerCut();
    volume.options().step_hook = nullptr;
    if (pinned) volume.LoseReplicas();
    pinned_seen = pinned_seen || pinned;
    ASSERT_OK(volume.Recover());
    EXPECT_EQ(volume.Content("f"), kReplayed) << "after step " << steps;
    EXPECT_EQ(volume.Content("second"), "2nd3456789") << "after step " << steps;
    EXPECT_FALSE(volume.State().open);
    EXPECT_FALSE(volume.HasPinnedLog());
  }
  EXPECT_TRUE(pinned_seen);
  EXPECT_GT(steps, 8);
}

TEST(DirectPowerCutTest, RecoveryAfterAnyFailedSyncEndsTheSame) {
  bool reached = true;
  for (uint64_t nth = 1; reached; ++nth) {
    MemoryBacking backing;
    BrokenDirect volume(backing, backing.root());
    volume.LeaveOpen(Session());
    const uint64_t before = backing.calls(MemoryBacking::Call::kSync);
    backing.FailNth(MemoryBacking::Call::kSync, static_cast<int>(nth), EIO);
    volume.Recover().IgnoreError();
    reached = backing.calls(MemoryBacking::Call::kSync) - before >= nth;
    backing.PowerCut();
    ASSERT_OK(volume.Recover());
    EXPECT_EQ(volume.Content("f"), kReplayed) << "sync " << nth;
    EXPECT_FALSE(volume.State().open);
  }
}

// R84, R95: the disk is full for the pinned log, or for the replay.
TEST(DirectFullDiskTest, AnyFullWriteIsExplainedAndARerunEndsTheSame) {
  int explained = 0;
  bool reached = true;
  for (uint64_t nth = 1; reached; ++nth) {
    MemoryBacking backing;
    BrokenDirect volume(backing, backing.root());
    volume.LeaveOpen(Session());
    const uint64_t before = backing.calls(MemoryBacking::Call::kWrite);
    backing.FailNth(MemoryBacking::Call::kWrite, static_cast<int>(nth), ENOSPC);
    const absl::Status full = volume.Recover();
    reached = backing.calls(MemoryBacking::Call::kWrite) - before >= nth;
    if (absl::StrContains(full.message(), "free space on the disk")) ++explained;
    ASSERT_OK(volume.Recover());
    EXPECT_EQ(volume.Content("f"), kReplayed) << "write " << nth;
  }
  EXPECT_GE(explained, 2);
}

// Runs `body` as an ordinary user, in a process of its own. Returns whether its expectations held.
bool AsNobody(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(100);
    body();
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A directory of an ordinary user. Needs root, to become that user.
class OrdinaryUserTest : public testing::Test {
 protected:
  OrdinaryUserTest() {
    std::string pattern = "/var/tmp/salius-direct-XXXXXX";
    path_ = mkdtemp(pattern.data());
    SALIUS_CHECK(chown(path_.c_str(), 65534, 65534) == 0);
  }
  ~OrdinaryUserTest() override { std::filesystem::remove_all(path_); }

  int Root() const {
    const int fd = open(path_.c_str(), O_RDONLY | O_DIRECTORY);
    SALIUS_CHECK(fd >= 0);
    return fd;
  }

  std::string path_;
};

TEST_F(OrdinaryUserTest, FilesComeBackWithoutRoot) {
  EXPECT_TRUE(AsNobody([this] {
    BrokenDirect volume(LinuxBacking(), Root());
    volume.LeaveOpen(Session());
    ASSERT_OK(volume.Recover());
    EXPECT_EQ(volume.Content("f"), kReplayed);
    EXPECT_FALSE(volume.State().open);
  }));
}

// Leaves the mark of a session of `epoch` in this life. Returns false where none is relied on.
bool LeaveMark(BrokenDirect& volume, int root, Epoch epoch) {
  const absl::StatusOr<uint64_t> complaints = LinuxBacking().ComplaintsOf(root);
  if (!AppliedMark::IsReliedOn(LinuxBacking(), root) || !complaints.ok()) return false;
  const auto dir = volume.OpenDir();
  auto mark = AppliedMark::Open(dir->salius_fd);
  SALIUS_CHECK_OK(mark);
  mark->Reset(epoch, *complaints);
  return true;
}

TEST_F(OrdinaryUserTest, SameLifeWithItsMarkIsSyncedAndNotReplayed) {  // R83
  EXPECT_TRUE(AsNobody([this] {
    const int root = Root();
    BrokenDirect volume(LinuxBacking(), root);
    volume.SameLife();
    volume.LeaveOpen(Session());
    if (!LeaveMark(volume, root, kEpoch)) return;
    volume.LoseReplicas();
    ASSERT_OK(volume.Recover());
    EXPECT_TRUE(volume.report().same_life);
    EXPECT_EQ(volume.Content("f"), kUnchanged);
    EXPECT_FALSE(volume.State().open);
    EXPECT_EQ(volume.State().epoch, kEpoch + 1);
  }));
}

TEST_F(OrdinaryUserTest, MarkOfAnotherSessionIsNotBelieved) {  // R83
  EXPECT_TRUE(AsNobody([this] {
    const int root = Root();
    BrokenDirect volume(LinuxBacking(), root);
    volume.SameLife();
    volume.LeaveOpen(Session());
    LeaveMark(volume, root, kEpoch - 1);
    ASSERT_OK(volume.Recover());
    EXPECT_FALSE(volume.report().same_life);
    EXPECT_EQ(volume.Content("f"), kReplayed);
  }));
}

TEST_F(OrdinaryUserTest, FileThatCannotBeWrittenIsNamedAndTheNextRunContinues) {  // R94
  EXPECT_TRUE(AsNobody([this] {
    BrokenDirect volume(LinuxBacking(), Root());
    volume.LeaveOpen(Session());
    ASSERT_EQ(chmod((path_ + "/f").c_str(), 0444), 0);
    const absl::Status refused = volume.Recover();
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_TRUE(absl::StrContains(refused.message(), "\"f\" cannot be opened for writing"))
        << refused;
    EXPECT_TRUE(volume.State().open);
    volume.LoseReplicas();  // the decision is pinned
    ASSERT_EQ(chmod((path_ + "/f").c_str(), 0644), 0);
    ASSERT_OK(volume.Recover());
    EXPECT_EQ(volume.Content("f"), kReplayed);
  }));
}

TEST_F(OrdinaryUserTest, DirectoryThatMayHideAFileIsNamed) {  // R93
  EXPECT_TRUE(AsNobody([this] {
    BrokenDirect volume(LinuxBacking(), Root());
    volume.LeaveOpen(Session());
    const std::string hidden = path_ + "/hidden";
    ASSERT_EQ(mkdir(hidden.c_str(), 0700), 0);
    ASSERT_EQ(rename((path_ + "/f").c_str(), (hidden + "/f").c_str()), 0);
    ASSERT_EQ(chmod(hidden.c_str(), 0), 0);
    const absl::Status refused = volume.Recover();
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_TRUE(absl::StrContains(refused.message(), "\"hidden\" cannot be read")) << refused;
    ASSERT_EQ(chmod(hidden.c_str(), 0700), 0);
    ASSERT_OK(volume.Recover());
    EXPECT_EQ(volume.Content("hidden/f"), kReplayed);
  }));
}

TEST_F(OrdinaryUserTest, DirectoryThatHidesNothingNeededIsPassedBy) {
  EXPECT_TRUE(AsNobody([this] {
    BrokenDirect volume(LinuxBacking(), Root());
    volume.LeaveOpen(Session());
    ASSERT_EQ(mkdir((path_ + "/hidden").c_str(), 0), 0);
    ASSERT_OK(volume.Recover());
    EXPECT_EQ(volume.Content("f"), kReplayed);
  }));
}

// R85: a log that was cut off before its decision does not count.
// R19: the note of a run whose name was not synced, because the run died or its sync failed.
TEST(DirectPowerCutTest, TokenOfACutOffRunIsSyncedBeforeItIsUsedAgain) {
  bool fenced_again = false, reached = true;
  for (int nth = 1; reached; ++nth) {
    MemoryBacking backing;
    BrokenDirect volume(backing, backing.root());
    volume.LeaveOpen(Session());
    const uint64_t before = backing.calls(MemoryBacking::Call::kSync);
    backing.FailNth(MemoryBacking::Call::kSync, nth, EIO);
    volume.Recover().IgnoreError();
    reached = backing.calls(MemoryBacking::Call::kSync) - before >= static_cast<uint64_t>(nth);
    bool fenced = false;
    volume.options().step_hook = [&](RecoveryStep step) {
      fenced = step == RecoveryStep::kFenced;
      return fenced ? absl::AbortedError("power cut") : absl::OkStatus();
    };
    volume.Recover().IgnoreError();
    fenced_again = fenced_again || fenced;
    volume.options().step_hook = nullptr;
    backing.PowerCut();
    ASSERT_OK(volume.Recover());
    EXPECT_EQ(volume.Content("f"), kReplayed) << "sync " << nth;
  }
  EXPECT_TRUE(fenced_again);
}

TEST(DirectPowerCutTest, PinnedLogWithoutADecisionIsMadeAgain) {
  MemoryBacking backing;
  BrokenDirect volume(backing, backing.root());
  volume.LeaveOpen(Session());
  {
    const auto dir = volume.OpenDir();
    ASSERT_OK(MakePinnedLog(backing, dir->salius_fd, TestVolume(), {}).status());
  }
  EXPECT_TRUE(volume.HasPinnedLog());
  ASSERT_OK(volume.Recover());
  EXPECT_FALSE(volume.report().already_decided);
  EXPECT_EQ(volume.Content("f"), kReplayed);
}

}  // namespace
}  // namespace salius::recovery
