#include "client/volume/issuer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/volume/changeable.h"
#include "client/volume/health.h"
#include "common/check.h"
#include "common/file.h"
#include "common/limits.h"
#include "storage/apply.h"

namespace salius {
namespace {

// Returns the path of the node relative to the volume's root; empty when it has none.
std::string PathBelow(Backing& backing, const Node& root, const Node& node) {
  const absl::StatusOr<std::string> top = backing.PathOf(root.path_fd.get());
  const absl::StatusOr<std::string> path = backing.PathOf(node.path_fd.get());
  if (!top.ok() || !path.ok()) return "";
  const std::string prefix = *top == "/" ? "/" : *top + "/";
  if (path->compare(0, prefix.size(), prefix) != 0) return "";
  std::string below = path->substr(prefix.size());
  return below.size() <= kMaxPathBytes ? below : "";
}

// Returns the last record that is unapplied and changes the node; 0: none.
Seq LastUnapplied(const NodeChanges::Records& records) {
  return std::max(records.unapplied > 0 ? records.last_seq : 0,
                  records.unapplied_names > 0 ? records.name_seq : 0);
}

}  // namespace

Issuer::Issuer(Backing& backing, NodeTable& table, Predictions& predictions,
               const StreamSlot& stream, SpaceGuard& space, PatchMemory& memory,
               FileId id_ceiling)
    : backing_(backing),
      table_(table),
      predictions_(predictions),
      stream_(stream),
      space_(space),
      memory_(memory),
      id_ceiling_(id_ceiling),
      adopted_(
          GetCounter("salius_adopted_files_total", "Files that were there before and got an id")),
      cancelled_(GetCounter("salius_cancelled_records_total",
                            "Operations that failed when they were applied")),
      waits_(GetCounter("salius_durable_waits_total",
                        "Times that a call waited until its records were durable")) {}

absl::Status Issuer::EnsureId(Node& node) {
  if (node.identified.load()) return absl::OkStatus();
  absl::MutexLock lock(&node.stream);
  return EnsureIdLocked(node);
}

absl::Status Issuer::EnsureIdLocked(Node& node) {
  if (node.identified.load()) return absl::OkStatus();
  const absl::StatusOr<FileHandle> handle = backing_.HandleOf(node.path_fd.get());
  RecordDraft draft;
  draft.op = Op::kAdopt;
  AdoptBody body;
  if (handle.ok()) {
    body.handle_type = handle->type;
    body.handle = handle->bytes;
  }
  SALIUS_ASSIGN_OR_RETURN(const FileId old, ReadFileId(backing_, node.path_fd.get()));
  // An id that another node in use has, or that this volume never gave, was copied together with
  // the file.
  const bool known = old != kNoFileId && old < id_ceiling_.load() && table_.SetId(node, old);
  if (!known) {
    SALIUS_RETURN_IF_ERROR(CheckChangeable(backing_, node));
    body.path = PathBelow(backing_, table_.root(), node);
    if (!handle.ok() && body.path.empty()) return handle.status();
    SALIUS_RETURN_IF_ERROR(WriteNewId(node));
  }
  absl::Status status;
  if (!known || handle.ok()) {
    // Recovery learns from this record which copy of the file this is. Applying changes nothing,
    // and no caller waits: the record is sent with the change that follows.
    draft.body = body.Encode();
    draft.when = SendWhen::kLater;
    status = IssueOn(node, std::move(draft)).status();
  }
  if (!status.ok()) {
    table_.ClearId(node);
    return status;
  }
  node.identified.store(true);
  if (!known) adopted_.Increment();
  return absl::OkStatus();
}

// Gives the file an id on the disk, before any record names it, so that a full disk is an error of
// the caller. An id that no record names does no harm: no id below the session's durable limit is
// handed out again.
absl::Status Issuer::WriteNewId(Node& node) {
  SALIUS_ASSIGN_OR_RETURN(const FileId id, NewId());
  if (!table_.SetId(node, id)) {
    return absl::InternalError(absl::StrCat("file id ", id, " is another file's already"));
  }
  const absl::Status written = WriteFileId(backing_, node.path_fd.get(), id);
  if (!written.ok()) table_.ClearId(node);
  NoteDiskError(written);
  return written;
}

void Issuer::NoteDiskError(const absl::Status& error) {
  if (StatusErrno(error) == EIO) static_cast<void>(stream_->SyncNow());
}

absl::StatusOr<FileId> Issuer::NewId() {
  absl::StatusOr<FileId> id = stream_->NewFileId();
  // Files that were copied from another volume may have ids that this volume hands out only now.
  while (id.ok() && table_.Find(*id)) id = stream_->NewFileId();
  if (!id.ok()) return AsDataError(id.status());
  FileId ceiling = id_ceiling_.load();
  while (ceiling <= *id && !id_ceiling_.compare_exchange_weak(ceiling, *id + 1)) {
  }
  return id;
}

absl::StatusOr<RecordRef> Issuer::Issue(RecordDraft draft) {
  // The locks held here (`stream`, `names`) are none that Apply takes, so a full window opens
  // again.
  if (draft.result != nullptr && !IsDataOp(draft.op)) draft.arg2 = kAwaited;
  const uint64_t charge = SpaceCharge(draft.op, draft.body.size());
  space_.Issued(charge);
  absl::StatusOr<RecordRef> record = stream_->Issue(std::move(draft));
  if (!record.ok()) space_.Applied(charge);
  return record;
}

absl::StatusOr<RecordRef> Issuer::IssueOn(Node& node, RecordDraft draft) {
  return IssueOn(node, std::move(draft), nullptr);
}

absl::StatusOr<RecordRef> Issuer::IssueEarly(Node& node, RecordDraft draft,
                                             Predictions::Enter enter) {
  draft.when = SendWhen::kLater;
  return IssueOn(node, std::move(draft), &enter);
}

absl::StatusOr<RecordRef> Issuer::IssueOn(Node& node, RecordDraft draft,
                                          const Predictions::Enter* enter) {
  const bool data = IsDataOp(draft.op);
  uint64_t size = 0;
  if (data) {
    SALIUS_ASSIGN_OR_RETURN(size, LogicalSize(node));
  }
  {
    absl::MutexLock lock(&node.state);
    NodeChanges::Records& records = node.records();
    if (data && records.unapplied_data++ == 0) records.size = size;
    ++records.unapplied;
    ++records.entering;
  }
  table_.Pin(node);
  draft.file_id = node.id.load();
  absl::StatusOr<RecordRef> record = absl::UnknownError("not issued");
  const absl::Status begun = enter != nullptr ? predictions_.Begin(node) : absl::OkStatus();
  if (begun.ok()) {
    record = Issue(std::move(draft));
  } else {
    record = begun;
  }
  if (!record.ok()) {
    {
      absl::MutexLock lock(&node.state);
      if (data) --node.records().unapplied_data;
      --node.records().unapplied;
      --node.records().entering;
    }
    table_.Unpin(node);  // the caller holds a pin of its own
    return AsDataError(record.status());
  }
  const RecordHeader& header = (*record)->header();
  bool ended = false;
  {
    absl::MutexLock lock(&node.state);
    NodeChanges::Records& records = node.records();
    records.last_seq = header.seq;
    if (data) {
      records.size = SizeAfter(records.size, header);
      records.data_time_ns = header.timestamp_ns;
      // Another thread may have applied it already.
      if (records.applied_seq < header.seq) {
        const uint64_t before = records.extents.bytes();
        records.extents.Add(*record);
        memory_.Changed(before, records.extents.bytes());
      }
    }
    if (records.prediction != nullptr) {
      if (enter != nullptr) (*enter)(*records.prediction, header.seq, RecordTime(header));
      if (data && (*record)->result() == nullptr) {
        records.prediction->Data(header, RecordTime(header));
      }
    }
    --records.entering;
    ended = records.prediction != nullptr && records.applied_seq >= header.seq;
  }
  if (ended) SALIUS_RETURN_IF_ERROR(AsDataError(predictions_.Settle(node, header.seq)));
  return record;
}

absl::StatusOr<RecordRef> Issuer::IssueName(RecordDraft draft) {
  absl::StatusOr<RecordRef> record = Issue(std::move(draft));
  return record.ok() ? std::move(record) : AsNameError(record.status());
}

absl::StatusOr<uint64_t> Issuer::LogicalSize(Node& node) {
  {
    absl::MutexLock lock(&node.state);
    const NodeChanges::Records& records = node.seen_records();
    if (records.unapplied_data > 0 || records.size_known) return records.size;
  }
  // Nothing that changes the size is under way, and nothing is issued meanwhile.
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.Stat(node.path_fd.get()));
  absl::MutexLock lock(&node.state);
  NodeChanges::Records& records = node.records();
  records.size = static_cast<uint64_t>(st.st_size);
  records.size_known = true;
  return records.size;
}

absl::Status Issuer::AwaitApplied(Seq seq) {
  RecordStream& stream = *stream_;
  CountWait();
  SALIUS_RETURN_IF_ERROR(stream.WaitDurable(seq));
  stream.TryApply();
  return stream.WaitApplied(seq);
}

absl::Status Issuer::AwaitResult(const RecordRef& record) {
  SALIUS_RETURN_IF_ERROR(AsDataError(AwaitApplied(record->seq())));
  const ApplyResult& result = *record->result();
  if (result.status.ok()) return absl::OkStatus();
  // Recovery must not perform an operation that is refused now.
  cancelled_.Increment();
  RecordDraft draft;
  draft.op = Op::kCancel;
  draft.file_id = record->header().file_id;
  draft.arg0 = record->seq();
  const absl::StatusOr<RecordRef> cancel = Issue(std::move(draft));
  if (!cancel.ok()) return AsDataError(cancel.status());
  CountWait();
  SALIUS_RETURN_IF_ERROR(AsDataError(stream_->WaitDurable((*cancel)->seq())));
  return result.status;
}

absl::Status Issuer::AwaitRemoval(Node& node) {
  Seq removal = 0;
  {
    absl::MutexLock lock(&node.state);
    if (node.orphan) return absl::OkStatus();
    removal = node.seen_records().removal_seq;
  }
  return removal == 0 ? absl::OkStatus() : AsDataError(AwaitApplied(removal));
}

absl::Status Issuer::AwaitNode(Node& node) {
  Seq last = 0;
  {
    absl::MutexLock lock(&node.state);
    last = LastUnapplied(node.seen_records());
  }
  if (last == 0) return absl::OkStatus();
  CountWait();
  SALIUS_RETURN_IF_ERROR(AsDataError(stream_->WaitDurable(last)));
  stream_->TryApply();
  // Records of other files, before these, may still wait for their pages.
  return IsApplied(node) ? absl::OkStatus() : AsDataError(stream_->WaitApplied(last));
}

absl::Status Issuer::AwaitNodeBriefly(Node& node) {
  Seq last = 0;
  {
    absl::MutexLock lock(&node.state);
    last = LastUnapplied(node.seen_records());
  }
  if (last == 0) return absl::OkStatus();
  const absl::Status applied = stream_->WaitAppliedFor(last, kBriefNs);
  if (!absl::IsDeadlineExceeded(applied)) return AsDataError(applied);
  return IsApplied(node) ? absl::OkStatus() : applied;
}

bool Issuer::IsApplied(Node& node) {
  absl::MutexLock lock(&node.state);
  return LastUnapplied(node.seen_records()) == 0;
}

absl::Status Issuer::AwaitIssued() { return AsDataError(AwaitApplied(stream_.issued())); }

}  // namespace salius
