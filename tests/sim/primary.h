// One simulated session: the shipping replicator, stable log and state file, driven as
// client/engine/pipeline drives them, but by events on simulated time instead of threads. Every
// blocking call of the pipeline (an append, a note, a sync) is a job here that takes effect when it
// starts and comes back later, so that a crash can come in between.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/engine/replicator.h"
#include "common/random.h"
#include "log/applied_mark.h"
#include "log/record.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "log/volume_config.h"
#include "tests/sim/disk.h"
#include "tests/sim/fs_model.h"

namespace salius::sim {

enum class DiskTrouble { kNone, kSyncFails, kWriteFails, kFull };

// What the session needs from the world around it.
class World {
 public:
  virtual ~World() = default;
  virtual int64_t now() const = 0;  // of the primary's clock
  virtual void At(int64_t delay, std::function<void()> what) = 0;
  virtual int64_t DiskTime() = 0;
  // What befalls the next job on the volume's own files, and the next sync of the file system.
  virtual DiskTrouble JobTrouble() = 0;
  virtual bool SyncFails() = 0;
  virtual bool ApplyFails() = 0;      // the next record: EIO
  virtual bool LastSyncFails() = 0;   // the one in which the process dies
  virtual bool WriteBackFails() = 0;  // before it dies, and somebody else hears of it
  // There is no room to apply this record.
  virtual bool NoRoomFor(const RecordHeader& header) = 0;
  virtual void SendToReplica(int replica, std::string datagram) = 0;
  virtual void OpenSession(int replica, Epoch epoch, uint64_t session, Seq base) = 0;
  virtual uint64_t Realtime() = 0;
  virtual Random& random() = 0;
};

// A replica's answer to a session that it opened.
struct Opening {
  Incarnation incarnation = 0;
  StoreId store = 0;
  uint64_t free_bytes = 0;
};

class Primary {
 public:
  // `encoded[i]` is the record of seq i + 1: what this session issued, kept for the judge.
  struct Issued {
    RecordHeader header;
    std::string body;
    std::string encoded;
    int64_t time = 0;  // of the primary's clock
  };

  // Notes the new session; the disk must be clean. INTERNAL and others when the disk fails.
  static absl::StatusOr<std::unique_ptr<Primary>> Start(World& world, Disk& disk, FsModel& fs,
                                                        const VolumeConfig& config,
                                                        uint64_t session);

  bool CanIssue(size_t body_bytes) const;
  // Stamps one record and starts to replicate it; returns its seq.
  Seq Issue(RecordHeader draft, std::string body, SendWhen when = SendWhen::kNow);
  void OnDatagram(int replica, std::string_view datagram);
  void OnOpened(int replica, Seq base, const absl::StatusOr<Opening>& opened);
  void Tick();
  // The process dies: between applying records and noting it; in a sync that is under way, whose
  // failure it does not hear any more; or after the kernel told somebody else what it could not
  // write back.
  void Die();
  // Its disk is taken away: whatever it wants to write never comes back.
  void LoseDisk() { disk_ = nullptr; }
  // The fsync of a bulk file failed: the volume fails, and with it the sync that it asks for.
  void OnBulkSyncFailed();

  const Replicator& core() const { return core_; }
  Epoch epoch() const { return epoch_; }
  uint64_t session() const { return session_; }
  const std::deque<Issued>& issued() const { return issued_; }
  FileId NewFileId() { return next_file_id_++; }
  int mode_changes() const { return mode_changes_; }
  // A record met EIO when it was applied.
  bool apply_failed() const { return apply_failed_; }
  // Operations on names that found no room: their callers get an error once a record cancels them.
  std::vector<Seq> TakeRefused() { return std::exchange(refused_, {}); }

 private:
  Primary(World& world, Disk& disk, FsModel& fs, const VolumeConfig& config, uint64_t session,
          StateFile state, StableLog stable, AppliedMark mark);
  void Drain();
  void StartNote(const Note& note);
  void StartStable();
  void Send(const Replicator::SendRange& range);
  FrameHeader Frame() const;
  // As the pipeline does: leaves a few writes for those to come, but nothing that somebody awaits,
  // unless `few_too`.
  void ApplyDurable(bool few_too);
  // Runs `work` now as a job on the disk and `done` when it comes back.
  void Job(std::function<absl::Status()> work, std::function<void(absl::Status)> done);

  World& world_;
  Disk* disk_;
  FsModel& fs_;
  const VolumeConfig config_;
  const uint64_t session_;
  StateFile state_;
  StableLog stable_;
  AppliedMark mark_;
  std::optional<uint64_t> syncing_;  // the changes of the file system that a sync is to cover
  Epoch epoch_ = 0;
  VolumeState opened_;
  FileId next_file_id_ = 0;
  uint64_t last_timestamp_ = 0;
  Replicator core_;
  std::deque<Issued> issued_;
  bool stable_busy_ = false, apply_failed_ = false;
  std::optional<Seq> cut_;
  std::vector<Seq> refused_;
  Mode last_mode_ = Mode::kLocal;
  int mode_changes_ = 0;
};

}  // namespace salius::sim
