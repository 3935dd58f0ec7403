// Whole recoveries on any backing: in memory, on ext4 and on xfs. In memory also with a power cut
// after each step.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "gtest/gtest.h"
#include "log/recovery_notes.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "recovery/recovery.h"
#include "storage/apply.h"
#include "storage/volume_config.h"
#include "tests/unit/recovery/fake_replica.h"
#include "tests/unit/storage/backing_worlds.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius::recovery {
namespace {

constexpr Epoch kEpoch = 7;

// A volume whose session has ended without a clean note, and its two replicas.
class Broken {
 public:
  Broken(Backing& backing, int root) : backing_(backing), root_(root) {
    config_ = DefaultVolumeConfig();
    config_.volume = TestVolume();
    config_.log_max_bytes = 1 << 20;
    config_.stable_log_bytes = 3 << 20;
    config_.ballast_bytes = 64 << 10;
    config_.replicas = {"a:1", "b:1"};
    config_.acks = 2;
    SALIUS_CHECK_OK(CreateVolume(backing_, Dir().get(), "/volume", config_));
    SALIUS_CHECK_OK(backing_.MakeNode(root_, "f", S_IFREG | 0644, 0));
    const BackingFd file = Open("f", O_RDWR);
    SALIUS_CHECK_OK(backing_.Pwrite(file.get(), "0123456789", 0));
    SALIUS_CHECK_OK(WriteFileId(backing_, file.get(), 50));
    SALIUS_CHECK_OK(backing_.Fsync(Dir().get()));
    options_.connector = &net_;
    options_.rpc_timeout_ms = 200;
    options_.fence_timeout_ms = 500;
    options_.fence_grace_ms = 100;
    options_.local_fence_timeout_ms = 200;
  }

  // Notes an open session, and gives the replicas the records of `stamper`.
  void LeaveOpen(const Stamper& stamper) {
    const auto dir = OpenDir();
    auto file = StateFile::Open(backing_, dir->salius_fd, kStateFileName);
    SALIUS_CHECK_OK(file);
    VolumeState state = file->state();
    state.open = true;
    state.epoch = kEpoch;
    state.mode = Mode::kReplicated;
    state.boot_id = "00000000-0000-0000-0000-000000000000";
    state.members = {{"a:1", 11, 1}, {"b:1", 12, 1}};
    state.file_id_limit = 1000;
    SALIUS_CHECK_OK(file->Write(state));
    const RecordSet set = SetOf(stamper.all());
    for (const Member& member : state.members) {
      FakeReplica& replica = net_.at(member.address);
      replica.incarnation = member.incarnation;
      replica.epoch = kEpoch;
      for (const RecordView& record : set.views()) {
        replica.records[record.seq()] = std::string(record.encoded());
      }
    }
  }
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
  RecoveryOptions& options() { return options_; }
  const RecoveryReport& report() const { return report_; }
  FakeConnector& net() { return net_; }

 private:
  BackingFd Dir() { return Open(".", O_RDONLY | O_DIRECTORY); }
  BackingFd Open(const std::string& name, int flags) {
    auto fd = backing_.OpenAt(root_, name, flags);
    SALIUS_CHECK_OK(fd);
    return std::move(*fd);
  }

  Backing& backing_;
  const int root_;
  VolumeConfig config_;
  FakeConnector net_;
  RecoveryOptions options_;
  RecoveryReport report_;
};

// Returns the records of a session: data, a new file, a rename, a removal.
Stamper Session() {
  Stamper s(kEpoch);
  s.Write(50, 0, "abc");
  s.CreateFile(60, kRootFileId, "new");
  s.Write(60, 0, "hello");
  s.MakeDir(61, kRootFileId, "d");
  s.Rename(60, kRootFileId, "new", 61, "moved");
  s.CreateFile(62, kRootFileId, "gone");
  s.Unlink(62, kRootFileId, "gone", false, true);
  return s;
}

class RecoveryBackingTest : public BackingTest {
 protected:
  // Expects the tree that Session() leaves.
  static void ExpectRecovered(Broken& volume, Backing& backing, int root) {
    EXPECT_EQ(volume.Content("f"), "abc3456789");
    EXPECT_TRUE(absl::IsNotFound(backing.StatAt(root, "new").status()));
    EXPECT_TRUE(absl::IsNotFound(backing.StatAt(root, "gone").status()));
    const auto d = backing.OpenAt(root, "d", O_PATH);
    SALIUS_CHECK_OK(d);
    EXPECT_EQ(backing.StatAt(d->get(), "moved")->st_size, 5);
    const VolumeState state = volume.State();
    EXPECT_FALSE(state.open);
    EXPECT_GT(state.epoch, kEpoch);
    EXPECT_EQ(state.recovered_seq, 7u);
  }
};
SALIUS_IN_EVERY_WORLD(RecoveryBackingTest);

TEST_P(RecoveryBackingTest, CleanVolumeIsUnchanged) {
  Broken volume(backing(), root());
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.report().outcome, RecoveryOutcome::kClean);
  EXPECT_EQ(volume.net().at("a:1").fences, 0);
}

TEST_P(RecoveryBackingTest, RecordsOfTheReplicasComeBack) {
  Broken volume(backing(), root());
  volume.LeaveOpen(Session());
  ASSERT_OK(volume.Recover());
  EXPECT_EQ(volume.report().outcome, RecoveryOutcome::kRecovered);
  EXPECT_TRUE(volume.report().ballast_restored);
  ExpectRecovered(volume, backing(), root());
  const auto dir = volume.OpenDir();
  const auto notes = ReadRecoveryNotes(backing(), dir->salius_fd);
  ASSERT_OK(notes.status());
  EXPECT_EQ(notes->all().back().decided, 7u);
}

TEST_P(RecoveryBackingTest, TooFewReplicasAreUnavailable) {
  Broken volume(backing(), root());
  volume.LeaveOpen(Session());
  volume.net().at("a:1").unreachable = volume.net().at("b:1").unreachable = true;
  EXPECT_EQ(volume.Recover().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(volume.State().open);
  EXPECT_EQ(volume.Content("f"), "0123456789");
}

// A power cut after any step: the next run ends in the same tree.
TEST(RecoveryPowerCutTest, RecoveryAfterAnyStepEndsTheSame) {
  bool cut = true;
  int steps = 0;
  for (; cut; ++steps) {
    MemoryBacking backing;
    Broken volume(backing, backing.root());
    volume.LeaveOpen(Session());
    int left = steps;
    volume.options().step_hook = [&](RecoveryStep) {
      return left-- == 0 ? absl::AbortedError("power cut") : absl::OkStatus();
    };
    cut = absl::IsAborted(volume.Recover());
    backing.PowerCut();
    volume.options().step_hook = nullptr;
    ASSERT_OK(volume.Recover());
    EXPECT_EQ(volume.Content("f"), "abc3456789") << "after step " << steps;
    EXPECT_FALSE(volume.State().open);
    EXPECT_EQ(volume.State().recovered_seq, 7u);
  }
  EXPECT_GT(steps, 5);
}

// A recovery whose nth sync fails, and that is cut off then, can be run again.
TEST(RecoveryFailureTest, RecoveryAfterAnyFailedSyncEndsTheSame) {
  bool reached = true;
  for (uint64_t nth = 1; reached; ++nth) {
    MemoryBacking backing;
    Broken volume(backing, backing.root());
    volume.LeaveOpen(Session());
    const uint64_t before = backing.calls(MemoryBacking::Call::kSync);
    backing.FailNth(MemoryBacking::Call::kSync, static_cast<int>(nth), EIO);
    volume.Recover().IgnoreError();
    reached = backing.calls(MemoryBacking::Call::kSync) - before >= nth;
    backing.PowerCut();
    ASSERT_OK(volume.Recover());
    EXPECT_EQ(volume.Content("f"), "abc3456789") << "sync " << nth;
    EXPECT_EQ(volume.State().recovered_seq, 7u);
  }
}

}  // namespace
}  // namespace salius::recovery
