// The pipeline of one session: stamp -> replicate -> DURABLE -> apply -> checkpoint -> trim
// (docs/protocol.md). It knows records and watermarks, not files: what a record does to the backing
// files is the ApplySink's business (client/engine/volume.h implements it).
//
// All decisions are taken by a pure core (client/engine/replicator.h, a state machine without
// threads, sockets or clocks); this class is the threads, sockets and files around it.
//
// Threads: every public method may be called from any thread. Whoever waits for durability also
// receives acknowledgements itself (leader and followers), so that a lone synchronous writer is
// woken by the ack's datagram and by nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/engine/send_when.h"
#include "common/ids.h"
#include "log/record.h"
#include "log/state_file.h"
#include "log/volume_config.h"

namespace salius {

// An issued record: header (encoded and decoded) and body, immutable, shared by the patches of its
// file, the retransmit window and the applier. Freed when it is checkpointed and applied.
class Record {
 public:
  const RecordHeader& header() const { return header_; }
  Seq seq() const { return header_.seq; }
  std::string_view body() const { return body_; }
  const uint8_t* encoded_header() const { return encoded_; }
  // What the issuer attached (RecordDraft::context): e.g. the slot for a name operation's result.
  void* context() const { return context_.get(); }

 private:
  friend class Pipeline;
  RecordHeader header_;
  uint8_t encoded_[kRecordHeaderBytes];
  std::string body_;
  std::shared_ptr<void> context_;
};
using RecordRef = std::shared_ptr<const Record>;

// What the caller wants stamped.
struct RecordDraft {
  Op op = Op::kWrite;
  FileId file_id = kNoFileId;
  uint64_t arg0 = 0, arg1 = 0, arg2 = 0;
  std::string body;  // moved, never copied; at most kMaxRecordBody bytes
  SendWhen when = SendWhen::kNow;
  std::shared_ptr<void> context;  // travels with the record to ApplySink::Apply, is not encoded
};

struct Watermarks {
  Seq checkpoint = 0, applied = 0, durable = 0, issued = 0;
};

// What `salius status`, the metrics and the logs show (I10: the mode the volume is really in).
struct ReplicaReport {
  std::string address;
  bool member = false;     // in the noted state: its acks count
  bool connected = false;  // has an open session and answers
  Incarnation incarnation = 0;
  Seq base = 0, contiguous = 0;
  uint64_t lag_records = 0, lag_bytes = 0, rtt_us = 0, free_bytes = 0, resent = 0;
  std::string problem;
  // Largest datagram of first transmissions, and what its route would carry; smaller where larger
  // ones are lost on the way.
  uint32_t datagram_bytes = 0, route_bytes = 0;
  // There is a multicast group, which does not reach it: first transmissions go by unicast.
  bool group_unheard = false;
  std::string control_problem;  // why nothing could be recovered from it; empty: it could
  std::string host;  // boot id of its host, as it says; empty: not known
  std::string ip;    // numeric, without a port; empty: not known
};
struct PipelineStatus {
  Epoch epoch = 0;
  std::string mode;         // replicated, local, failed
  std::string mode_detail;  // why, and what is under way
  uint64_t mode_since_unix_ms = 0;  // when it entered the mode, by the wall clock then
  uint64_t mode_for_ms = 0;         // the same by the monotonic clock, until now
  Watermarks marks;
  uint64_t uncheckpointed_bytes = 0;
  uint64_t oldest_uncheckpointed_ms = 0;
  uint64_t stable_log_used_bytes = 0, stable_log_capacity_bytes = 0;
  std::vector<ReplicaReport> replicas;
  std::string failure;
};

// The pipeline's way to the backing files.
class ApplySink {
 public:
  virtual ~ApplySink() = default;
  // May run before Issue() has returned to the issuer (another thread saw the record become
  // durable), so it must find what it needs under the node's lock or in record->context(). It may
  // take node locks but never directory locks, and must never wait for the pipeline (Issue, Wait*,
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

struct PipelineOptions {
  VolumeConfig config;
  std::string session_name;  // for logs
  // How long the one who waits for acknowledgements looks for them before it sleeps, when few wait.
  int64_t spin_ns = 0;
  // Replicas may be on other hosts. Else no name is followed there, and Start fails with
  // INVALID_ARGUMENT when one leads there already.
  bool insecure = false;
  // Called (on any thread) when the volume fails; after it every Issue and Wait returns the error.
  std::function<void(const absl::Status&)> on_failure;
};

class Pipeline {
 public:
  // Starts a session on a clean (or just recovered) volume: notes (open, epoch + 1, mode local)
  // before anything else, then opens sessions at the replicas in the background and heals to
  // `replicated`. `dir` must hold the volume lock and outlive the pipeline, as must `sink`. `state`
  // and `stable` are taken over.
  static absl::StatusOr<std::unique_ptr<Pipeline>> Start(const VolumeDir& dir, StateFile state,
                                                         class StableLog stable, ApplySink& sink,
                                                         PipelineOptions options);
  ~Pipeline();  // without Stop(): like a crash of the process, the volume stays open

  // Stamps and sends one record. Blocks while the window is full or the k*tau deadline is near, so
  // the caller must hold no lock that Apply takes: a full window opens only when records are
  // applied and checkpointed. Callers that hold a common lock get seqs in the order of their calls.
  // Errors: FAILED_PRECONDITION after fencing, INTERNAL after a failure (errno EIO in both).
  absl::StatusOr<RecordRef> Issue(RecordDraft draft);

  // Returns when `seq` and everything before it is durable (I1). Errors as Issue: then nothing is
  // known about `seq`.
  absl::Status WaitDurable(Seq seq);
  // Calls `done` once, with what WaitDurable would return, from this thread or another. Returns at
  // once when another thread receives acknowledgements; else this one does, for all who wait, until
  // none does. `done` runs in whatever thread hears of the outcome, which may hold locks of its
  // caller: it must neither block nor take a lock of the volume.
  void WhenDurable(Seq seq, DurableCallback done);
  // Whether lately more callers waited for durability than there are CPUs, which then have better
  // to do than to look for what comes.
  bool ManyWait() const;
  // Returns when `seq` has been applied (which implies durable).
  absl::Status WaitApplied(Seq seq);
  // The same for a caller that must not wait for the disk: DEADLINE_EXCEEDED when `seq` is not
  // applied within `bound_ns`, or at once while an apply has been under way for longer than that.
  // The calling thread applies nothing.
  absl::Status WaitAppliedFor(Seq seq, int64_t bound_ns);
  // Applies what is durable on the calling thread when nobody else is at it. Never blocks. For a
  // caller that has just waited: saves a wake-up of the applier.
  void TryApply();

  // Forces everything issued so far to be durable, applied, synced and noted as checkpointed.
  absl::Status Checkpoint();

  // Syncs the backing file system now, whether or not there is anything to checkpoint; for what is
  // in no record. An error is final: the session has failed.
  absl::Status SyncNow();

  // Hands out volume-unique file ids, never reused; notes a new limit durably when a block is used
  // up.
  absl::StatusOr<FileId> NewFileId();

  Watermarks watermarks() const;
  // OK while the session is healthy, else the error that every call returns.
  absl::Status health() const;
  PipelineStatus status() const;

  // Drains: everything durable, applied, synced, state noted clean, replicas told to drop. After OK
  // nothing depends on a replica. On error the volume stays open and will be recovered.
  absl::Status Stop();

 private:
  struct Impl;
  explicit Pipeline(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace salius
