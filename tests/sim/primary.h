// One simulated session: the shipping session core, stable log and state file, with simulated I/O
// around them. Events on simulated time take the place of the pipeline's threads. Every blocking
// call (an append, a note, a sync) is a job here. It takes effect when it starts and comes back
// later, so that a crash can come in between.
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

#include "absl/types/span.h"
#include "client/session/session_core.h"
#include "common/random.h"
#include "log/applied_mark.h"
#include "log/record.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "storage/volume_config.h"
#include "tests/sim/disk.h"
#include "tests/sim/fs_model.h"
#include "tests/sim/replica_host.h"
#include "transport/packer.h"

namespace salius::sim {

enum class DiskTrouble { kNone, kSyncFails, kWriteFails, kFull };

// The session's environment.
class World {
 public:
  virtual ~World() = default;
  virtual int64_t now() const = 0;  // of the primary's clock
  virtual void At(int64_t delay, std::function<void()> what) = 0;
  virtual int64_t DiskTime() = 0;
  // Returns the trouble of the next job on the volume's own files, or of the next sync of the file
  // system.
  virtual DiskTrouble JobTrouble() = 0;
  virtual bool SyncFails() = 0;
  virtual bool ApplyFails() = 0;      // the next record: EIO
  virtual bool LastSyncFails() = 0;   // the sync in which the process dies
  virtual bool WriteBackFails() = 0;  // before it dies, and another process gets the error
  // Returns whether there is no room to apply this record.
  virtual bool NoRoomFor(const RecordHeader& header) = 0;
  // Returns the datagram of a frame: sealed once for all replicas.
  virtual std::string Seal(std::string frame) = 0;
  virtual void SendToReplica(int replica, std::string datagram) = 0;
  virtual void OpenSession(int replica, Epoch epoch, uint64_t session, Seq base) = 0;
  virtual uint64_t Realtime() = 0;
  virtual Random& random() = 0;
};

class Primary {
 public:
  // Notes the new session; the disk must be clean. INTERNAL and other errors when the disk fails.
  static absl::StatusOr<std::unique_ptr<Primary>> Start(World& world, Disk& disk, FsModel& fs,
                                                        const VolumeConfig& config,
                                                        uint64_t session);

  bool CanIssue(size_t body_bytes) const;
  // Stamps one record and starts to replicate it; returns its seq.
  Seq Issue(const RecordHeader& draft, std::string body, SendWhen when = SendWhen::kNow);
  void OnDatagram(int replica, std::string_view datagram);
  void OnOpened(int replica, Seq base, const absl::StatusOr<Opening>& opened);
  // Takes notice that a replica has lost the session's memory.
  void OnWentBack(int replica) { Feed(input::WentBack{replica}); }
  void Tick();
  // Ends the process at one of these moments: between applying records and noting it; in a running
  // sync, whose failure it does not learn; or after the kernel reported a failed write-back to
  // another process.
  void Die();
  // Takes its disk away: its later writes never come back.
  void LoseDisk() { disk_ = nullptr; }
  // Notes that the fsync of a bulk file failed: the volume fails, and with it the sync that it
  // requests.
  void OnBulkSyncFailed();

  const Replicator& core() const { return core_.policy(); }
  Epoch epoch() const { return core_.key().epoch; }
  uint64_t session() const { return core_.key().session; }
  // Returns when a record was issued, by the primary's clock.
  int64_t IssuedAt(Seq seq) const { return records_[seq - 1].issued_ns; }
  // Returns whether a replica's copy may make a record durable, now or under the note that is being
  // written.
  bool NeedsReplicas() const { return core().noted().mode != Mode::kLocal || note_busy_; }
  // Returns the first record that is neither checkpointed nor in the stable log.
  Seq OldestNeeded() const;
  FileId NewFileId();
  // Returns whether a callback came before its record was durable.
  bool notified_too_early() const { return notified_too_early_; }
  int mode_changes() const { return mode_changes_; }
  // Returns whether a record met EIO when it was applied.
  bool apply_failed() const { return apply_failed_; }
  // Returns the operations on names that found no room. Their callers get an error once a record
  // cancels them.
  std::vector<Seq> TakeRefused() { return std::exchange(refused_, {}); }

 private:
  Primary(World& world, Disk& disk, FsModel& fs, const VolumeConfig& config, uint64_t session,
          StateFile state, StableLog stable, AppliedMark mark);
  // Feeds one input, and does what follows.
  void Feed(const Input& input);
  void Do(Work& work);
  void StartNote(const VolumeState& note);
  void StartSync();
  void StartStable();
  void Send(const SendJob& job);
  // Applies durable records as the pipeline does. It leaves a few writes for later ones, but no
  // record that a caller awaits, unless `few_too`.
  void ApplyDurable(bool few_too);
  bool OneIsAwaited() const;
  // Returns the error that fails the volume.
  absl::Status ApplyOne(const Record& record);
  // Runs `work` now as a job on the disk and `done` when it comes back.
  void Job(std::function<absl::Status()> work, std::function<void(absl::Status)> done);

  World& world_;
  Disk* disk_;
  FsModel& fs_;
  const VolumeConfig config_;
  StateFile state_;
  StableLog stable_;
  AppliedMark mark_;
  // The changes of the file system that a running sync will cover.
  std::optional<uint64_t> syncing_;
  SessionCore core_;
  struct Issued {
    int64_t issued_ns = 0;
    bool stable = false;  // it is in the stable log
  };
  std::deque<Issued> records_;  // all of the session
  bool stable_busy_ = false, note_busy_ = false, apply_failed_ = false, notified_too_early_ = false;
  std::optional<Seq> cut_;
  std::vector<Seq> refused_;
  Mode last_mode_ = Mode::kLocal;
  int mode_changes_ = 0;
};

}  // namespace salius::sim
