// Shared by the tests of whole recoveries: a real volume on the test's file system, replicas inside
// the process.
#pragma once

#include <string>
#include <vector>

#include "common/ext4_watch.h"
#include "common/host.h"
#include "log/applied_mark.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "recovery/recovery.h"
#include "storage/apply.h"
#include "storage/backing.h"
#include "storage/volume_config.h"
#include "tests/unit/recovery/fake_replica.h"

namespace salius::recovery {

inline constexpr Epoch kEpoch = 7;
inline constexpr FileId kRoot = kRootFileId;
inline constexpr uint64_t kBallast = 64 << 10;

class RecoveryTest : public ::testing::Test {
 protected:
  RecoveryTest() {
    config_ = DefaultVolumeConfig();
    config_.volume = TestVolume();
    config_.log_max_bytes = 1 << 20;
    config_.stable_log_bytes = 3 << 20;
    config_.ballast_bytes = kBallast;
    config_.replicas = {"a:1", "b:1", "c:1"};
    config_.acks = 2;
    SALIUS_CHECK_OK(CreateVolume(dir_.path(), config_));
    state_.volume = config_.volume;
    state_.open = true;
    state_.epoch = kEpoch;
    state_.mode = Mode::kReplicated;
    state_.boot_id = "00000000-0000-0000-0000-000000000000";
    state_.acks = 2;
    state_.members = {{"a:1", 11, 1}, {"b:1", 12, 1}, {"c:1", 13, 1}};
    state_.file_id_limit = 1000;
    for (const Member& member : state_.members) {
      FakeReplica& replica = net_.at(member.address);
      replica.incarnation = member.incarnation;
      replica.epoch = kEpoch;
    }
    options_.connector = &net_;
    options_.rpc_timeout_ms = 200;
    options_.fence_timeout_ms = 500;
    options_.fence_grace_ms = 100;
    options_.local_fence_timeout_ms = 200;
    options_.partial_report = &report_;
    WriteFile(At("f"), "0123456789");
    SetId("f", 50);
  }

  std::string At(const std::string& name) const { return dir_.path() + "/" + name; }
  void SetId(const std::string& name, FileId id) {
    const UniqueFd fd = MustOpen(At(name), O_PATH | O_NOFOLLOW);
    SALIUS_CHECK_OK(WriteFileId(fd.get(), id));
  }
  UniqueFd SaliusFd() const { return MustOpen(At(".salius")); }

  // Writes state_ as the volume's state.
  void NoteState() {
    const UniqueFd fd = SaliusFd();
    auto file = StateFile::Open(LinuxBacking(), fd.get(), kStateFileName);
    SALIUS_CHECK_OK(file);
    SALIUS_CHECK_OK(file->Write(state_));
  }
  // Leaves the state of a session of this boot and mount, with `applied` of `epoch`. Before it the
  // kernel had `more` complaints than there are. Returns false where a life cannot be identified.
  bool NoteSameLife(Epoch epoch, Seq applied, uint64_t more) {
    const UniqueFd root = MustOpen(dir_.path());
    const auto mount_id = UniqueMountId(root.get());
    const auto complaints = Ext4Complaints(root.get());
    if (!mount_id.ok() || !complaints.ok()) return false;
    state_.mount_id = *mount_id;
    state_.boot_id = *BootId();
    NoteState();
    const UniqueFd fd = SaliusFd();
    auto mark = AppliedMark::Open(fd.get());
    SALIUS_CHECK_OK(mark);
    mark->Reset(epoch, *complaints - more);
    mark->Store(applied);
    return true;
  }
  VolumeState ReadState() const {
    const UniqueFd fd = SaliusFd();
    auto file = StateFile::Open(LinuxBacking(), fd.get(), kStateFileName);
    SALIUS_CHECK_OK(file);
    return file->state();
  }
  void AppendStable(const std::vector<std::string>& records) {
    const UniqueFd fd = SaliusFd();
    auto log =
        StableLog::Open(LinuxBacking(), fd.get(), kStableLogFileName, config_.volume, nullptr);
    SALIUS_CHECK_OK(log);
    for (const std::string& record : records) {
      const StableLog::Item item{AsBytes(record).first(kRecordHeaderBytes),
                                 AsBytes(record).subspan(kRecordHeaderBytes)};
      SALIUS_CHECK_OK(log->Append({&item, 1}));
    }
  }
  // Gives the replicas all records so far.
  void Replicate(const std::vector<std::string>& addresses) {
    const RecordSet set = SetOf(s_.all());
    for (const std::string& address : addresses) {
      for (const RecordView& record : set.views()) {
        net_.at(address).records[record.seq()] = std::string(record.encoded());
      }
    }
  }
  absl::Status Run() {
    auto dir = VolumeDir::Open(dir_.path(), /*lock=*/true);
    SALIUS_CHECK_OK(dir);
    report_ = RecoveryReport();
    return Recover(*dir, options_).status();
  }

  TempDir dir_;
  VolumeConfig config_;
  VolumeState state_;
  FakeConnector net_;
  RecoveryOptions options_;
  RecoveryReport report_;
  Stamper s_{kEpoch};
};

}  // namespace salius::recovery
