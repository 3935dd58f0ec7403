// The session core: all of a session but its threads, sockets and files. It is made of
//
//     Window        the slots of (checkpoint, issued]
//     Replicator    the policy: durability, modes, members, notes, timers, re-sends
//     Stamper       timestamps and marks
//     RecordRing    the records that are still needed
//     Waiters       leader, followers, callbacks
//     FileIdBlocks  new file ids
//     StateNotes    the content of state notes
//     FilterAck     which datagrams are acknowledgements
//     PeerPaths     the way of each transmission
//
// Feed(now, input) takes one input and adds to a Work what must be done next, without the core:
// the pipeline does it with threads and sockets, the simulator (tests/sim/primary.cc) with events.
//
// pure: no thread, lock, socket or clock. The caller serialises all calls. `now` is monotonic (ns).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/session/ack_filter.h"
#include "client/session/file_id_blocks.h"
#include "client/session/foreign_records.h"
#include "client/session/peer_paths.h"
#include "client/session/record_draft.h"
#include "client/session/replicator.h"
#include "client/session/send_job.h"
#include "client/session/stamper.h"
#include "client/session/state_notes.h"
#include "client/session/waiters.h"
#include "client/session/window.h"
#include "common/ids.h"
#include "log/state_file.h"
#include "storage/volume_config.h"

namespace salius {

// The inputs of a session core. The references in them must be good during Feed only.
namespace input {

struct Received {  // from the network
  absl::Span<const AckDatagram> datagrams;
};
struct TimePassed {};  // for the timers; every datagram that has arrived was fed before
struct Awaited {       // a caller waits for `seq`, which may be gathered
  Seq seq = 0;
  SendWhen when = SendWhen::kNow;
};
struct Opened {  // answers Work::opens
  int replica = 0;
  Incarnation incarnation = 0;
  StoreId store = 0;
  Seq base = 0;
  uint64_t free_bytes = 0;
};
struct OpenFailed {  // answers Work::opens
  int replica = 0;
  std::string why;
  bool fenced = false;
};
struct AddressTaken {  // another replica has its address
  int replica = 0;
};
struct Stable {  // answers TakeStableBatch
  absl::Span<const RecordRef> records;
  absl::Status status;
};
struct Applied {  // all records up to `seq` were applied
  Seq seq = 0;
};
struct ApplyFailed {
  absl::Status status;
};
struct Synced {  // answers Work::start_sync
  Seq applied_before = 0;
  absl::Status status;
};
struct NoteWritten {  // answers Work::note
  absl::Status status;
};
struct CheckpointWanted {};
struct SyncWanted {};     // as CheckpointWanted, also when nothing was issued
struct WentBack {  // a process heard that the replica's memory went back
  int replica = 0;
};
struct StripesPassed {};  // answers Work::pass_stripes
struct Stopping {};  // no wait can succeed any more

}  // namespace input
using Input = std::variant<input::Received, input::TimePassed, input::Awaited, input::Opened,
                           input::OpenFailed, input::AddressTaken, input::Stable, input::Applied,
                           input::ApplyFailed, input::Synced, input::NoteWritten,
                           input::CheckpointWanted, input::SyncWanted, input::WentBack,
                           input::StripesPassed, input::Stopping>;

// The work that follows an input. Several inputs may add to one Work.
struct Work {
  std::vector<SendJob> jobs;                   // send, in this order
  std::vector<Replicator::OpenRequest> opens;  // open sessions; feed Opened or OpenFailed
  std::optional<VolumeState> note;             // write it durably; feed NoteWritten
  bool start_sync = false;                     // sync what was applied; feed Synced
  bool pass_stripes = false;                   // take each stripe lock once; feed StripesPassed
  bool stable_wanted = false;                  // TakeStableBatch has something
  std::optional<Seq> cut;                      // cut the stable log there
  std::vector<Waiters::Callback> done;         // call: their seq is durable
  std::vector<Waiters::Callback> failed;       // call with `why`
  absl::Status why;
  absl::Status failure;                            // report it: the volume has failed
  std::vector<RecordRef> dropped;                  // free them without a lock: that takes a while
  std::vector<ReplicatorEvent> events;             // for the log
  std::vector<int> changed_paths;                  // for the log: these replicas' PeerPath changed
  std::array<uint32_t, kAckVerdicts> datagrams{};  // received, by verdict
  bool durable_advanced = false;                   // wake the callers that wait; or never will
  bool window_opened = false;                      // wake the callers that wait for room
};

// The records of (min(checkpoint, applied), issued].
class RecordRing {
 public:
  void Add(RecordRef record) { records_.push_back(std::move(record)); }
  const RecordRef& At(Seq seq) const { return records_[seq - first_]; }
  // Moves the records up to `seq` to `dropped`.
  void DropUpTo(Seq seq, std::vector<RecordRef>& dropped);

 private:
  std::deque<RecordRef> records_;
  Seq first_ = 1;
};

struct SessionTuning {
  Seq few = 0;       // ReplicatorOptions::few
  int64_t cpus = 1;  // of this host
  bool output_triggered = false;  // ReplicatorOptions::output_triggered
  // File ids are noted in blocks of this many.
  FileId file_id_block = 65536;
  // Null: the core issues all records. It outlives the core.
  ForeignRecords* foreign = nullptr;
};

class SessionCore {
 public:
  // The most records that are given to the sink at once.
  static constexpr Seq kApplyTogether = 16;
  // The most records that one waiter applies for others before it returns to its own caller.
  static constexpr Seq kApplyBurst = 64;
  // A leader that completed other callers' waits may leave up to kApplyAtLeast - 1 records
  // unapplied: several are applied together at a fraction of the cost, and no caller waits for
  // that. The io thread has the last ones applied when no more come.
  static constexpr Seq kApplyAtLeast = 8;

  SessionCore(const VolumeConfig& config, const SessionTuning& tuning, int64_t now);
  // Begins the session: `first` (StateNotes::First) is on the disk. `session`: its random number.
  // Nothing but paths() may be used before.
  void Begin(const VolumeState& first, uint64_t session);

  // Returns whether there is room for a record of `record_bytes` (header and body).
  bool CanIssue(int64_t now, size_t record_bytes) const;
  // Stamps `record`, whose body_crc is set, and keeps it for sending. Call it only after CanIssue.
  // `realtime_ns`: the wall clock.
  Seq Issue(int64_t now, int64_t realtime_ns, const std::shared_ptr<Record>& record, SendWhen when,
            Work& work);
  void Feed(int64_t now, const Input& input, Work& work);
  // Returns a new file id. Nothing when a note must come first: it was wanted, in `work`.
  std::optional<FileId> NewFileId(int64_t now, Work& work);

  // Returns the records to append to the stable log now, at most `max_bytes` of them, at least one
  // when any is wanted. Answer with Stable.
  std::vector<RecordRef> TakeStableBatch(uint64_t max_bytes);
  // Sets `*batch` to the durable records to apply after `taken`, the last that was given to the sink;
  // at most kApplyTogether. Answer with Applied, when all before are applied too, or ApplyFailed.
  void NextToApply(Seq taken, std::vector<RecordRef>* batch) const;

  // Returns OK if waits can succeed, else the error that ends them.
  absl::Status Waitable() const;
  // Returns the note that closes the session cleanly. Everything issued must be checkpointed.
  VolumeState ClosedNote() const;
  // Returns the mode that the volume is really in (I10): replicated, local or failed.
  std::string_view mode() const;

  const Replicator& policy() const { return policy_; }
  Waiters& waiters() { return waiters_; }
  PeerPaths& paths() { return paths_; }
  const PeerPaths& paths() const { return paths_; }
  const SessionKey& key() const { return key_; }
  bool stopping() const { return stopping_; }
  bool needs_file_ids() const { return file_ids_.empty(); }

 private:
  void Take(int64_t now, const Input& input, Work& work);
  RecordRef RecordAt(Seq seq) const { return foreign_ ? foreign_->At(seq) : ring_.At(seq); }
  void TakeDatagram(int64_t now, const AckDatagram& datagram, Work& work);
  void TakeStable(int64_t now, const input::Stable& stable);
  // Turns the policy's outputs into work.
  void Collect(int64_t now, Work& work);
  void AddJobs(int64_t now, const Replicator::Outputs& out, Work& work);
  // Moves the callbacks whose wait is over, or all of them with an error, to `work`.
  void CollectCallbacks(Work& work);
  NoteMarks Marks(FileId file_id_limit) const {
    return {foreign_ ? foreign_->last_timestamp_ns() : stamper_.last_timestamp_ns(), file_id_limit};
  }

  const VolumeConfig& config_;
  const FileId file_id_block_;
  ForeignRecords* const foreign_;  // may be null
  SessionKey key_;
  const OwnedWindow window_;  // null: it is in foreign_
  Replicator policy_;
  Stamper stamper_;
  RecordRing ring_;
  Waiters waiters_;
  FileIdBlocks file_ids_;
  StateNotes notes_;
  PeerPaths paths_;
  bool stopping_ = false;
  bool failure_reported_ = false;
};

}  // namespace salius
