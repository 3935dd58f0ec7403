// The stream of records of one session: all that a volume knows of replication (docs/protocol.md).
// It knows records and watermarks, not files: an ApplySink applies records to the backing files
// (BackingApplier in client/volume implements it).
//
// Threads: every method may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/gate/page.h"
#include "client/session/record_draft.h"
#include "client/session/session_status.h"
#include "common/ids.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "storage/volume_config.h"
#include "transport/datagram_channel.h"

namespace salius {

class Credentials;  // transport/credentials.h

// Applies records to the backing files, for the stream.
class ApplySink {
 public:
  virtual ~ApplySink() = default;
  // Applies the first of `records`, or as many of the first as can be applied together, or takes
  // them over to apply them later (below). Returns how many; the others are passed again. The stream
  // makes one call at a time, in seq order, with at least one record, and only with durable ones.
  //
  // - It may run before Issue() has returned to the issuer, because another thread saw the record
  //   become durable. So it must find its data under the node's lock or in record->result().
  // - It may take a node's `content` and `state`, never `names` or `stream`. It must never wait for
  //   the stream (Issue, Wait*, Checkpoint).
  // - An operation with a result that fails puts the error there for the waiting caller, and counts
  //   as applied. An error returned here means that acknowledged data cannot reach the disk: the
  //   volume turns read-only (I8).
  virtual absl::StatusOr<size_t> Apply(absl::Span<const RecordRef> records) = 0;

  // ---- Records that Apply took over. The sink may apply them in any order that gives the same
  // files. All of them are durable, so recovery needs no order either: it replays each record that
  // is not in the applied prefix.
  // Returns the first of them that is not applied; 0: all are.
  virtual Seq FirstUnapplied() { return 0; }
  // Returns the error of one that could not be applied, which is final. It stays unapplied.
  virtual absl::Status LateError() { return absl::OkStatus(); }
  // Has `changed` called when FirstUnapplied or LateError has changed, on a thread of the sink and
  // without a lock. Called once, before Apply.
  virtual void OnLateChange(std::function<void()> changed) { static_cast<void>(changed); }
  // Begins what was put off of the records up to `seq`, because a caller waits or the log is full.
  virtual void Hurry(Seq seq) { static_cast<void>(seq); }

  // Makes every effect applied so far durable on the backing file system, for a checkpoint. An
  // error is final, never retried.
  virtual absl::Status SyncApplied() = 0;
  // Takes notice that a checkpoint has been noted. Must not wait.
  virtual void Checkpointed() {}
};

// Returns the final error of a volume, one of whose records could not be applied because of `why`
// (I8). It has the code of `why`.
absl::Status NotApplied(const Record& record, const absl::Status& why);

// Receives the outcome of a wait for durability.
using DurableCallback = absl::AnyInvocable<void(const absl::Status&) &&>;

class RecordStream {
 public:
  // Ends the stream. Without Stop() that is like a crash of the process: the volume stays open.
  virtual ~RecordStream() = default;

  // Stamps and sends one record. Blocks while the window is full or the k*tau deadline is near, so
  // the caller must hold no lock that Apply takes: a full window opens only when records are
  // applied and checkpointed. Callers that hold a common lock get seqs in the order of their calls.
  // Errors: FAILED_PRECONDITION after fencing, INTERNAL after a failure (errno EIO in both).
  virtual absl::StatusOr<RecordRef> Issue(RecordDraft draft) = 0;

  // Returns when `seq` and everything before it is durable (I1). Errors as Issue: then nothing is
  // known about `seq`.
  virtual absl::Status WaitDurable(Seq seq) = 0;
  // Calls `done` once, with the status that WaitDurable would return, from this thread or another.
  // Returns at once when another thread receives acknowledgements. Otherwise this thread receives
  // them for all waiters, until no waiter is left. `done` runs on the thread that learns the
  // outcome, which may hold locks of its caller: it must neither block nor take a lock of the
  // volume.
  virtual void WhenDurable(Seq seq, DurableCallback done) = 0;
  // Sends `seq` and all before it, and calls `done` like WhenDurable, but never makes this thread
  // receive acknowledgements: it returns at once. For callers that are in no hurry.
  virtual void NotifyDurable(Seq seq, DurableCallback done) { WhenDurable(seq, std::move(done)); }
  // Returns whether lately more callers waited for durability than there are CPUs. Then no thread
  // should poll.
  virtual bool ManyWait() const = 0;
  // Returns when `seq` has been applied (which implies durable).
  virtual absl::Status WaitApplied(Seq seq) = 0;
  // Waits like WaitApplied, for a caller that must not wait for the disk. DEADLINE_EXCEEDED when
  // `seq` is not applied within `bound_ns`, or at once while an apply has been under way for longer
  // than that, and for no other reason. The calling thread applies nothing.
  virtual absl::Status WaitAppliedFor(Seq seq, int64_t bound_ns) = 0;
  // Applies durable records on the calling thread, unless another thread is applying. Does not wait
  // for that one. A caller that has just waited saves a wake-up of the applier.
  virtual void TryApply() = 0;

  // Forces everything issued so far to be durable, applied, synced and noted as checkpointed.
  virtual absl::Status Checkpoint() = 0;

  // Syncs the backing file system now, even when there is nothing to checkpoint: for changes that
  // are in no record. An error is final: the session has failed.
  virtual absl::Status SyncNow() = 0;

  // Hands out volume-unique file ids, never reused; notes a new limit durably when a block is used
  // up.
  virtual absl::StatusOr<FileId> NewFileId() = 0;

  virtual Watermarks watermarks() const = 0;
  // Returns how long ago the first record above the checkpoint was issued; 0: there is none.
  virtual int64_t oldest_uncheckpointed_ns() const = 0;
  // Returns OK while the session is healthy, else the error that every call returns; never
  // DEADLINE_EXCEEDED.
  virtual absl::Status health() const = 0;
  virtual SessionStatus status() const = 0;

  // Drains: makes everything durable, applied and synced, notes the state as clean, and asks the
  // replicas to drop the log. After OK nothing depends on a replica. On error the volume stays open
  // and must be recovered.
  virtual absl::Status Stop() = 0;
};

struct StreamOptions {
  VolumeConfig config;
  std::string session_name;  // for logs
  // How long the thread that receives acknowledgements polls before it sleeps, when few callers
  // wait.
  int64_t spin_ns = 0;
  // Replicas may be on other hosts. Otherwise no name is followed there, and the start of the
  // session fails with INVALID_ARGUMENT when a name leads there already.
  bool insecure = false;
  // The keys of this process; null: none, control channels are not authenticated.
  std::shared_ptr<Credentials> keys = nullptr;
  // Datagrams are sealed also without keys, for tests. With keys they are, unless `plain` is set:
  // then the replicas are asked to take plain ones.
  bool sealed = false;
  bool plain = false;
  // How often the key of the datagrams changes; 0: never.
  int64_t key_rotation_ns = 0;
  // Where the marks are kept for gated processes (commit=external); null: nowhere. It outlives the
  // stream.
  gate::Page* gate_page = nullptr;
  // Records wait for an output or for a full batch (trigger=output).
  bool output_triggered = false;
  // Goes around the channel of the session's datagrams; empty: none.
  ChannelLayer channel_layer;
  // Called (on any thread) when the volume fails; after it every Issue and Wait returns the error.
  std::function<void(const absl::Status&)> on_failure;
};

// Starts a session on a clean (or just recovered) volume. `dir` holds the volume's lock. `dir` and
// `sink` outlive the stream, which takes `state` and `stable` over.
using StartRecordStream = absl::FunctionRef<absl::StatusOr<std::unique_ptr<RecordStream>>(
    const VolumeDir& dir, StateFile state, StableLog stable, ApplySink& sink,
    StreamOptions options)>;

}  // namespace salius
