// Stamping: how a change becomes a record, and how its caller learns what became of it.
//
// Threads: any. No lock of its own; the callers hold the node's `stream`.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/record_draft.h"
#include "client/volume/node.h"
#include "client/volume/patch_memory.h"
#include "client/volume/predictions.h"
#include "client/volume/stream_slot.h"
#include "common/ids.h"
#include "common/metrics.h"
#include "storage/backing.h"
#include "storage/space.h"

namespace salius {

class Issuer {
 public:
  // Makes an issuer for the records of `stream`, of files on `backing`. Ids at or above `id_ceiling` that this session did
  // not hand out come from another volume (copied xattrs).
  Issuer(Backing& backing, NodeTable& table, Predictions& predictions, const StreamSlot& stream,
         SpaceGuard& space, PatchMemory& memory, FileId id_ceiling);
  Issuer(const Issuer&) = delete;
  Issuer& operator=(const Issuer&) = delete;

  // ---- ids
  // Gives the node an id when it has none (adopting it) and enters it in the table.
  absl::Status EnsureId(Node& node) ABSL_LOCKS_EXCLUDED(node.stream);
  absl::Status EnsureIdLocked(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  absl::StatusOr<FileId> NewId();

  // Has the disk synced if a call that no record accompanies failed with EIO: a disk that has failed
  // fails the volume then, although nothing is to be applied.
  void NoteDiskError(const absl::Status& error);

  // ---- records. They may wait for room in the window.
  // Stamps a record of the node's own stream (data, attributes), with the file's id. Pins the node
  // until the record is applied, and adds a data record to its extents.
  absl::StatusOr<RecordRef> IssueOn(Node& node, RecordDraft draft)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Does so with an attribute record that its caller does not wait for: `enter` puts it into the
  // node's prediction.
  absl::StatusOr<RecordRef> IssueEarly(Node& node, RecordDraft draft, Predictions::Enter enter)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Stamps a name record. With a `result` in the draft the caller waits for it.
  absl::StatusOr<RecordRef> IssueName(RecordDraft draft);
  // Returns the size with all data records that were issued.
  absl::StatusOr<uint64_t> LogicalSize(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);

  // ---- waits. EIO when the volume fails meanwhile.
  // Waits until a record with a result is durable and applied, and returns the result. When that is
  // an error a cancel record is made durable first. After EIO a recovery may find the change made
  // or not.
  absl::Status AwaitResult(const RecordRef& record);
  // Waits until the record that removes the node's last name is applied, if one is pending: the
  // node is an orphan then. No record of the node may follow that record.
  absl::Status AwaitRemoval(Node& node);
  // Waits until no record of the node is unapplied, and no name record that changes its attributes.
  absl::Status AwaitNode(Node& node);
  // Waits likewise for at most kBriefNs, without applying anything: DEADLINE_EXCEEDED after that. A
  // call that can answer from memory must not wait for a disk that hangs.
  absl::Status AwaitNodeBriefly(Node& node);
  // Returns whether no record of the node is unapplied.
  static bool IsApplied(Node& node) ABSL_LOCKS_EXCLUDED(node.state);
  // Waits until every record that was issued so far is applied.
  absl::Status AwaitIssued();
  // Counts a call that waits until its records are durable, here or elsewhere.
  void CountWait() { waits_.Increment(); }

 private:
  static constexpr int64_t kBriefNs = 40'000'000;

  // Stamps a record of the node's own stream. `enter` is null for a record that enters no prediction
  // when it is issued, and for data.
  absl::StatusOr<RecordRef> IssueOn(Node& node, RecordDraft draft, const Predictions::Enter* enter)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Stamps any record, and counts the space that it may need. Waits for room in the window.
  absl::StatusOr<RecordRef> Issue(RecordDraft draft);
  absl::Status WriteNewId(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Waits until `seq` is durable and applied; the waiting thread helps.
  absl::Status AwaitApplied(Seq seq);

  Backing& backing_;
  NodeTable& table_;
  Predictions& predictions_;
  const StreamSlot& stream_;
  SpaceGuard& space_;
  PatchMemory& memory_;
  std::atomic<FileId> id_ceiling_;
  Counter& adopted_;
  Counter& cancelled_;
  Counter& waits_;
};

}  // namespace salius
