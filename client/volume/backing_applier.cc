#include "client/volume/backing_applier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/file.h"
#include "storage/apply.h"

namespace salius {
namespace {

absl::Status NotInUse(const RecordHeader& header) {
  return absl::InternalError(absl::StrCat("record ", header.seq, ": file ", header.file_id,
                                          " is not in use although it has unapplied records"));
}

// Gives the whiteout that renameat2(2) left its owner, because it belongs to this process, and its
// id. Recovery replaces a whiteout without an id.
absl::Status LabelWhiteout(Backing& backing, int dirfd, const RenameBody& rename) {
  SALIUS_ASSIGN_OR_RETURN(const BackingFd made,
                          backing.OpenAt(dirfd, rename.from_name, O_PATH | O_NOFOLLOW));
  SALIUS_RETURN_IF_ERROR(backing.Chown(made.get(), rename.whiteout_uid, rename.whiteout_gid));
  return WriteFileId(backing, made.get(), rename.whiteout);
}

}  // namespace

size_t BackingApplier::Together(absl::Span<const RecordRef> records) {
  const RecordHeader& first = records[0]->header();
  uint64_t end = first.arg0;
  size_t count = 0;
  for (const RecordRef& record : records) {
    const RecordHeader& next = record->header();
    if (next.op != Op::kWrite || next.file_id != first.file_id || next.arg0 != end) break;
    end += record->body().size();
    ++count;
  }
  return std::max<size_t>(count, 1);
}

absl::StatusOr<size_t> BackingApplier::Apply(absl::Span<const RecordRef> records) {
  const RecordRef& record = records[0];
  const RecordHeader& header = record->header();
  size_t count = 1;
  if (IsNameOp(header.op)) {
    SALIUS_RETURN_IF_ERROR(ApplyName(record));
  } else if (header.op != Op::kCancel) {
    const PinnedNode node = table_.Find(header.file_id);
    if (!node) return NotInUse(header);
    count = Together(records);
    if (count == 1) {
      SALIUS_RETURN_IF_ERROR(ApplyToFile(*node, record));
    } else {
      SALIUS_RETURN_IF_ERROR(ApplyWrites(*node, records.first(count)));
    }
  }
  for (const RecordRef& applied : records.first(count)) {
    space_.Applied(SpaceCharge(applied->header()));
  }
  return count;
}

absl::Status BackingApplier::ApplyWrites(Node& node, absl::Span<const RecordRef> records) {
  std::vector<iovec> parts;
  parts.reserve(records.size());
  for (const RecordRef& record : records) {
    // pwritev only reads, although iovec is not const.
    parts.push_back({const_cast<char*>(record->body().data()), record->body().size()});
  }
  SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, fds_.ForApply(node));
  absl::MutexLock lock(&node.content);
  NoteApplying(node, records.back()->seq());
  SALIUS_RETURN_IF_ERROR(backing_.Pwritev(fd->get(), parts, records[0]->header().arg0));
  SALIUS_RETURN_IF_ERROR(
      predictions_.SetDataTime(node, fd->get(), records.back()->header(), records.size()));
  return Finish(node, records);
}

absl::Status BackingApplier::ApplyMerged(absl::Span<const RecordRef> writes,
                                         const Extents& extents) {
  const RecordHeader& last = writes.back()->header();
  const PinnedNode node = table_.Find(last.file_id);
  if (!node) return NotInUse(last);
  SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, fds_.ForApply(*node));
  {
    absl::MutexLock lock(&node->content);
    NoteApplying(*node, last.seq);
    std::vector<iovec> parts;
    uint64_t begin = 0, end = 0;
    const auto write = [&]() -> absl::Status {
      return parts.empty() ? absl::OkStatus() : backing_.Pwritev(fd->get(), parts, begin);
    };
    for (const Extent& extent : extents.In(0, UINT64_MAX)) {
      if (extent.begin != end) {
        SALIUS_RETURN_IF_ERROR(write());
        parts.clear();
        begin = extent.begin;
      }
      end = extent.end;
      // pwritev only reads, although iovec is not const.
      parts.push_back({const_cast<char*>(extent.data), extent.bytes().size()});
    }
    SALIUS_RETURN_IF_ERROR(write());
    SALIUS_RETURN_IF_ERROR(predictions_.SetDataTime(*node, fd->get(), last, writes.size()));
    SALIUS_RETURN_IF_ERROR(Finish(*node, writes));
  }
  for (const RecordRef& applied : writes) space_.Applied(SpaceCharge(applied->header()));
  return absl::OkStatus();
}

absl::Status BackingApplier::NoteCutOff(absl::Span<const RecordRef> writes,
                                        const RecordHeader& by) {
  if (writes.empty()) return absl::OkStatus();
  const PinnedNode node = table_.Find(writes[0]->header().file_id);
  if (!node) return NotInUse(writes[0]->header());
  // The issuer of a truncation may not have entered its extent yet.
  if (IsDataOp(by.op)) NoteApplying(*node, by.seq);
  SALIUS_RETURN_IF_ERROR(Finish(*node, writes));
  for (const RecordRef& applied : writes) space_.Applied(SpaceCharge(applied->header()));
  return absl::OkStatus();
}

absl::Status BackingApplier::ApplyOneData(Node& node, const RecordRef& record) {
  const RecordHeader& header = record->header();
  ApplyResult* const result = record->result();
  SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, fds_.ForApply(node));
  absl::MutexLock lock(&node.content);
  NoteApplying(node, header.seq);
  const absl::Status applied = ApplyData(backing_, fd->get(), header, record->body());
  if (result == nullptr) SALIUS_RETURN_IF_ERROR(applied);
  if (applied.ok()) {
    if (result != nullptr) {
      SALIUS_RETURN_IF_ERROR(predictions_.EnterApplied(node, header, record->body()));
    }
    SALIUS_RETURN_IF_ERROR(predictions_.SetDataTime(node, fd->get(), header, 1));
  } else {
    absl::MutexLock state(&node.state);
    node.records().size_known = false;
  }
  if (result != nullptr) result->status = applied;
  return Finish(node, {&record, 1});
}

absl::Status BackingApplier::ApplyToFile(Node& node, const RecordRef& record) {
  const RecordHeader& header = record->header();
  ApplyResult* const result = record->result();
  switch (header.op) {
    case Op::kWrite:
    case Op::kTruncate:
    case Op::kFallocate:
      return ApplyOneData(node, record);
    case Op::kSetAttr:
    case Op::kSetXattr:
    case Op::kRemoveXattr: {
      const absl::Status applied = ApplyAttr(backing_, node.path_fd.get(), header, record->body());
      if (result == nullptr) {
        SALIUS_RETURN_IF_ERROR(applied);
        break;
      }
      if (applied.ok()) {
        SALIUS_RETURN_IF_ERROR(predictions_.EnterApplied(node, header, record->body()));
      }
      result->status = applied;
      break;
    }
    case Op::kAdopt:
      if (result == nullptr) break;  // the file has its id already
      result->status = WriteFileId(backing_, node.path_fd.get(), header.file_id);
      break;
    default:  // kOnDisk: only recovery acts on it
      break;
  }
  return Finish(node, {&record, 1});
}

void BackingApplier::NoteApplying(Node& node, Seq last) {
  absl::MutexLock lock(&node.state);
  Seq& applying = node.records().applying_seq;
  applying = std::max(applying, last);
}

absl::Status BackingApplier::Finish(Node& node, absl::Span<const RecordRef> records) {
  bool predicted = false;
  Seq last = 0;
  {
    absl::MutexLock lock(&node.state);
    NodeChanges::Records& all = node.records();
    const uint64_t before = all.extents.bytes();
    for (const RecordRef& record : records) {
      if (IsDataOp(record->header().op)) {
        all.extents.Remove(record->seq());
        --all.unapplied_data;
      }
    }
    memory_.Changed(before, all.extents.bytes());
    all.unapplied -= records.size();
    last = all.applied_seq = std::max(all.applied_seq, records.back()->seq());
    ++all.applies;
    predicted = all.prediction != nullptr;
  }
  const absl::Status settled = predicted ? predictions_.Settle(node, last) : absl::OkStatus();
  table_.Unpin(node, records.size());  // the caller holds a pin of its own
  return settled;
}

absl::Status BackingApplier::ApplyName(const RecordRef& record) {
  const RecordHeader& header = record->header();
  absl::Status status;
  if (header.op == Op::kCreate) {
    status = ApplyCreate(header, record->body());
  } else if (header.op == Op::kRename) {
    SALIUS_RETURN_IF_ERROR(ApplyRename(record->body(), &status));
  } else {
    status = ApplyLinkOrUnlink(header, record->body());
  }
  if (record->result() != nullptr) {
    record->result()->status = status;
  } else if (!status.ok()) {
    return status;  // the caller has returned
  }
  return pending_.NoteApplied(header.seq);
}

absl::Status BackingApplier::ApplyLinkOrUnlink(const RecordHeader& header, std::string_view body) {
  const absl::StatusOr<NameBody> name = NameBody::Decode(body);
  SALIUS_CHECK_OK(name) << "our own record";
  const PinnedNode parent = table_.Find(name->dir);
  const PinnedNode file = table_.Find(header.file_id);
  if (!parent || !file) return absl::InternalError("a name record whose caller has gone");
  if (header.op == Op::kLink) {
    return backing_.LinkFd(file->path_fd.get(), parent->path_fd.get(), name->name);
  }
  const PathFd::Use held = file->path_fd.get();
  if (held < 0) return ErrnoStatus(EBADF, "unlink");
  const int flags = header.arg0 != 0 ? AT_REMOVEDIR : 0;
  const absl::Status removed = backing_.Unlink(parent->path_fd.get(), name->name, flags);
  links_.UpdateOrphan(*file, held);
  return removed;
}

absl::Status BackingApplier::ApplyCreate(const RecordHeader& header, std::string_view body) {
  const absl::StatusOr<CreateBody> create = CreateBody::Decode(body);
  SALIUS_CHECK_OK(create) << "our own record";
  const std::string made = IdName(header.file_id);
  const bool nameless = create->dir == kNoFileId;
  const PinnedNode parent = nameless ? PinnedNode() : table_.Find(create->dir);
  if (!nameless && !parent) return absl::InternalError("a create record whose directory is gone");
  return backing_.Rename(dirs_.tmp_fd(), made, nameless ? dirs_.open_fd() : parent->path_fd.get(),
                         nameless ? made : create->name, RENAME_NOREPLACE);
}

absl::Status BackingApplier::ApplyRename(std::string_view body, absl::Status* result) {
  const absl::StatusOr<RenameBody> rename = RenameBody::Decode(body);
  SALIUS_CHECK_OK(rename) << "our own record";
  const PinnedNode from = table_.Find(rename->from_dir);
  const PinnedNode to = table_.Find(rename->to_dir);
  if (!from || !to) return absl::InternalError("a rename record whose caller has gone");
  const PinnedNode other = table_.Find(rename->other);
  const PathFd::Use held = other ? other->path_fd.get() : PathFd::Use(nullptr);
  if (other && held < 0) return ErrnoStatus(EBADF, "rename");
  const PinnedNode whiteout = table_.Find(rename->whiteout);  // made first: its name is pending
  const uint32_t flags = whiteout ? rename->flags & ~RENAME_WHITEOUT : rename->flags;
  *result = backing_.Rename(from->path_fd.get(), rename->from_name, to->path_fd.get(),
                            rename->to_name, flags);
  if (other) links_.UpdateOrphan(*other, held);
  if (whiteout && result->ok()) {
    *result = backing_.Rename(dirs_.tmp_fd(), IdName(rename->whiteout), from->path_fd.get(),
                              rename->from_name, RENAME_NOREPLACE);
    return absl::OkStatus();
  }
  if (!result->ok() || rename->whiteout == kNoFileId) return absl::OkStatus();
  // The names are what they should be, so the record cannot be cancelled any more.
  return LabelWhiteout(backing_, from->path_fd.get(), *rename);
}

void BackingApplier::Checkpointed() { links_.Checkpointed(); }

absl::Status BackingApplier::SyncApplied() {
  SALIUS_RETURN_IF_ERROR(health_.failure());
  links_.DropCovered();
  const BulkFiles::Writes bulk = bulk_.BeforeCheckpointSync();
  SALIUS_RETURN_IF_ERROR(dirs_.Sync());
  SALIUS_RETURN_IF_ERROR(health_.failure());  // an fsync meanwhile may have got an error instead
  bulk_.AfterCheckpointSync(bulk);
  return absl::OkStatus();
}

}  // namespace salius
