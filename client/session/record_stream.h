// The stream of records of one session: all that a volume knows of replication (docs/protocol.md).
// It knows records and watermarks, not files: ApplySink says what a record does to the backing
// files (client/volume/volume.h implements it).
//
// Threads: every method may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/session/record_draft.h"
#include "client/session/session_status.h"
#include "common/ids.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "storage/volume_config.h"

namespace salius {

// The stream's way to the backing files.
class ApplySink {
 public:
  virtual ~ApplySink() = default;
  // May run before Issue() has returned to the issuer (another thread saw the record become
  // durable), so it must find what it needs under the node's lock or in record->result(). It may
  // take node locks but never directory locks, and must never wait for the stream (Issue, Wait*,
  // Checkpoint). One call at a time, in seq order, only with durable records, at least one. Applies
  // the first of them, or as many of the first as can be applied together, and returns how many:
  // the others come again. A name operation that fails records its result for the waiting caller
  // and counts as applied; an error returned here means that acknowledged data cannot reach the
  // disk: the volume turns read-only (I8).
  virtual absl::StatusOr<size_t> Apply(absl::Span<const RecordRef> records) = 0;
  // Makes every effect applied so far durable on the backing file system (I: checkpoint). An error
  // is final, never retried.
  virtual absl::Status SyncApplied() = 0;
};

// Receives the outcome of a wait for durability.
using DurableCallback = absl::AnyInvocable<void(const absl::Status&) &&>;

class RecordStream {
 public:
  // Without Stop() the end of the stream is like a crash of the process: the volume stays open.
  virtual ~RecordStream() = default;

  // Stamps and sends one record. Blocks while the window is full or the k*tau deadline is near, so
  // the caller must hold no lock that Apply takes: a full window opens only when records are
  // applied and checkpointed. Callers that hold a common lock get seqs in the order of their calls.
  // Errors: FAILED_PRECONDITION after fencing, INTERNAL after a failure (errno EIO in both).
  virtual absl::StatusOr<RecordRef> Issue(RecordDraft draft) = 0;

  // Returns when `seq` and everything before it is durable (I1). Errors as Issue: then nothing is
  // known about `seq`.
  virtual absl::Status WaitDurable(Seq seq) = 0;
  // Calls `done` once, with what WaitDurable would return, from this thread or another. Returns at
  // once when another thread receives acknowledgements; else this one does, for all who wait, until
  // none does. `done` runs in whatever thread hears of the outcome, which may hold locks of its
  // caller: it must neither block nor take a lock of the volume.
  virtual void WhenDurable(Seq seq, DurableCallback done) = 0;
  // Whether lately more callers waited for durability than there are CPUs, which then have better
  // to do than to look for what comes.
  virtual bool ManyWait() const = 0;
  // Returns when `seq` has been applied (which implies durable).
  virtual absl::Status WaitApplied(Seq seq) = 0;
  // The same for a caller that must not wait for the disk: DEADLINE_EXCEEDED when `seq` is not
  // applied within `bound_ns`, or at once while an apply has been under way for longer than that.
  // The calling thread applies nothing.
  virtual absl::Status WaitAppliedFor(Seq seq, int64_t bound_ns) = 0;
  // Applies what is durable on the calling thread when nobody else is at it. Never blocks. For a
  // caller that has just waited: saves a wake-up of the applier.
  virtual void TryApply() = 0;

  // Forces everything issued so far to be durable, applied, synced and noted as checkpointed.
  virtual absl::Status Checkpoint() = 0;

  // Syncs the backing file system now, whether or not there is anything to checkpoint; for what is
  // in no record. An error is final: the session has failed.
  virtual absl::Status SyncNow() = 0;

  // Hands out volume-unique file ids, never reused; notes a new limit durably when a block is used
  // up.
  virtual absl::StatusOr<FileId> NewFileId() = 0;

  virtual Watermarks watermarks() const = 0;
  // OK while the session is healthy, else the error that every call returns.
  virtual absl::Status health() const = 0;
  virtual SessionStatus status() const = 0;

  // Drains: everything durable, applied, synced, state noted clean, replicas told to drop. After OK
  // nothing depends on a replica. On error the volume stays open and will be recovered.
  virtual absl::Status Stop() = 0;
};

struct StreamOptions {
  VolumeConfig config;
  std::string session_name;  // for logs
  // How long the thread that receives acknowledgements polls before it sleeps, when few callers wait.
  int64_t spin_ns = 0;
  // Replicas may be on other hosts. Else no name is followed there, and the start of
  // the session fails with INVALID_ARGUMENT when one leads there already.
  bool insecure = false;
  // Called (on any thread) when the volume fails; after it every Issue and Wait returns the error.
  std::function<void(const absl::Status&)> on_failure;
};

// Starts a session on a clean (or just recovered) volume. `dir` holds the volume's lock and outlives
// the stream, as `sink` does. `state` and `stable` are taken over.
using StartRecordStream = absl::FunctionRef<absl::StatusOr<std::unique_ptr<RecordStream>>(
    const VolumeDir& dir, StateFile state, StableLog stable, ApplySink& sink,
    StreamOptions options)>;

}  // namespace salius
