// The stream's sink: applies durable records to the backing files, and syncs for checkpoints.
// Records come in seq order, a few at a time.
//
// A failed write or truncation means that acknowledged data cannot reach the disk. Its error is
// returned: the volume turns read-only (I8). Every other record that can fail has a caller that
// waits for its result; that caller gets the error and cancels the record.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/volume/volume_impl.h"
#include "common/check.h"
#include "storage/apply.h"
#include "storage/fs_calls.h"

namespace salius {
namespace {

// Returns how many of the first records can be applied with one call: writes of one file, each of
// which begins where the one before ends. Any other record is applied alone.
size_t Together(absl::Span<const RecordRef> records) {
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

}  // namespace

absl::StatusOr<size_t> Volume::Impl::Apply(absl::Span<const RecordRef> records) {
  const RecordRef& record = records[0];
  const RecordHeader& header = record->header();
  size_t count = 1;
  if (IsNameOp(header.op)) {
    ApplyName(record);
  } else if (header.op != Op::kCancel) {
    const PinnedNode node = table.Find(header.file_id);
    if (!node) {
      return absl::InternalError(absl::StrCat("record ", header.seq, ": file ", header.file_id,
                                              " is not in use although it has unapplied records"));
    }
    count = Together(records);
    if (count == 1) {
      SALIUS_RETURN_IF_ERROR(ApplyToFile(*node, record));
    } else {
      SALIUS_RETURN_IF_ERROR(ApplyWrites(*node, records.first(count)));
    }
  }
  for (const RecordRef& applied : records.first(count)) {
    space->Applied(SpaceCharge(applied->header()));
  }
  return count;
}

absl::Status Volume::Impl::ApplyWrites(Node& node, absl::Span<const RecordRef> records) {
  std::vector<iovec> parts;
  parts.reserve(records.size());
  for (const RecordRef& record : records) {
    // pwritev only reads, although iovec is not const.
    parts.push_back({const_cast<char*>(record->body().data()), record->body().size()});
  }
  SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, WriteFd(node));
  absl::MutexLock lock(&node.content);
  NoteApplying(node, records.back()->seq());
  SALIUS_RETURN_IF_ERROR(
      PwritevFull(fd->get(), parts, static_cast<int64_t>(records[0]->header().arg0)));
  Finish(node, records.back()->seq(), records.size(), records.size());
  return absl::OkStatus();
}

absl::Status Volume::Impl::ApplyToFile(Node& node, const RecordRef& record) {
  const RecordHeader& header = record->header();
  ApplyResult* const result = record->result();
  switch (header.op) {
    case Op::kWrite:
    case Op::kTruncate:
    case Op::kFallocate: {
      SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, WriteFd(node));
      absl::MutexLock lock(&node.content);
      NoteApplying(node, header.seq);
      const absl::Status applied = ApplyData(fd->get(), header, record->body());
      if (result == nullptr) SALIUS_RETURN_IF_ERROR(applied);
      if (result != nullptr) result->status = applied;
      if (!applied.ok()) {
        absl::MutexLock state(&node.state);
        node.size_known = false;
      }
      Finish(node, header.seq, 1, 1);
      return absl::OkStatus();
    }
    case Op::kSetAttr:
    case Op::kSetXattr:
    case Op::kRemoveXattr:
      result->status = ApplyAttr(node.path_fd.get(), header, record->body());
      break;
    case Op::kAdopt:
      if (result == nullptr) break;  // the file has its id already
      result->status = WriteFileId(node.path_fd.get(), header.file_id);
      break;
    default:  // kOnDisk: only recovery acts on it
      break;
  }
  Finish(node, header.seq, 1, 0);
  return absl::OkStatus();
}

void Volume::Impl::NoteApplying(Node& node, Seq last) {
  absl::MutexLock lock(&node.state);
  node.applying_seq = last;
}

void Volume::Impl::Finish(Node& node, Seq last, size_t records, size_t data_records) {
  SharedFd idle;  // closed after the lock
  {
    absl::MutexLock lock(&node.state);
    node.applied_seq = last;
    node.patches.RemoveThrough(last);
    node.unapplied_data -= data_records;
    node.unapplied -= records;
    if (node.unapplied == 0 && node.handles == 0) idle = std::move(node.rw_fd);
  }
  table.Unpin(node, records);  // the caller holds a pin of its own
}

void Volume::Impl::ApplyName(const RecordRef& record) {
  const RecordHeader& header = record->header();
  ApplyResult& result = *record->result();
  if (header.op == Op::kCreate) {
    absl::StatusOr<UniqueFd> made = ApplyCreate(header, record->body());
    result.status = made.status();
    if (made.ok()) result.made = *std::move(made);
  } else if (header.op == Op::kRename) {
    result.status = ApplyRename(record->body());
  } else {
    result.status = ApplyLinkOrUnlink(header, record->body());
  }
}

absl::Status Volume::Impl::ApplyLinkOrUnlink(const RecordHeader& header, std::string_view body) {
  const absl::StatusOr<NameBody> name = NameBody::Decode(body);
  SALIUS_CHECK_OK(name) << "our own record";
  const PinnedNode parent = table.Find(name->dir);
  const PinnedNode file = table.Find(header.file_id);
  if (!parent || !file) return absl::InternalError("a name record whose caller has gone");
  if (header.op == Op::kLink) {
    return fs::LinkFd(file->path_fd.get(), parent->path_fd.get(), name->name);
  }
  const PathFd::Use held = file->path_fd.get();
  if (held < 0) return ErrnoStatus(EBADF, "unlink");
  const int flags = header.arg0 != 0 ? AT_REMOVEDIR : 0;
  const absl::Status removed = fs::Unlink(parent->path_fd.get(), name->name, flags);
  UpdateOrphan(*file, held);
  return removed;
}

absl::StatusOr<UniqueFd> Volume::Impl::ApplyCreate(const RecordHeader& header,
                                                   std::string_view body) {
  const absl::StatusOr<CreateBody> create = CreateBody::Decode(body);
  SALIUS_CHECK_OK(create) << "our own record";
  const std::string made = IdName(header.file_id);
  const bool nameless = create->dir == kNoFileId;
  const PinnedNode parent = nameless ? PinnedNode() : table.Find(create->dir);
  if (!nameless && !parent) return absl::InternalError("a create record whose caller has gone");
  absl::StatusOr<UniqueFd> fd = MakeObject(tmp_dir.get(), made, header.file_id, *create);
  absl::Status status = fd.status();
  if (status.ok()) {
    status = fs::Rename(tmp_dir.get(), made, nameless ? open_dir.get() : parent->path_fd.get(),
                        nameless ? made : create->name, RENAME_NOREPLACE);
  }
  if (status.ok()) return fd;
  RemoveLeftover(tmp_dir.get(), made);
  return status;
}

// Gives the whiteout that renameat2(2) left its owner, because it belongs to this process, and its
// id. Recovery replaces a whiteout without an id.
absl::Status Volume::Impl::LabelWhiteout(int dirfd, const RenameBody& rename) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd made,
                          OpenAt(dirfd, rename.from_name, O_PATH | O_NOFOLLOW));
  SALIUS_RETURN_IF_ERROR(fs::Chown(made.get(), rename.whiteout_uid, rename.whiteout_gid));
  return WriteFileId(made.get(), rename.whiteout);
}

absl::Status Volume::Impl::ApplyRename(std::string_view body) {
  const absl::StatusOr<RenameBody> rename = RenameBody::Decode(body);
  SALIUS_CHECK_OK(rename) << "our own record";
  const PinnedNode from = table.Find(rename->from_dir);
  const PinnedNode to = table.Find(rename->to_dir);
  if (!from || !to) return absl::InternalError("a rename record whose caller has gone");
  const PinnedNode other = table.Find(rename->other);
  const PathFd::Use held = other ? other->path_fd.get() : PathFd::Use(nullptr);
  if (other && held < 0) return ErrnoStatus(EBADF, "rename");
  const absl::Status renamed = fs::Rename(from->path_fd.get(), rename->from_name, to->path_fd.get(),
                                          rename->to_name, rename->flags);
  if (other) UpdateOrphan(*other, held);
  if (renamed.ok() && rename->whiteout != kNoFileId) {
    // The names are what they should be, so the record cannot be cancelled any more.
    const absl::Status labelled = LabelWhiteout(from->path_fd.get(), *rename);
    if (!labelled.ok()) Fail(labelled);
  }
  return renamed;
}

void Volume::Impl::UpdateOrphan(Node& node, const PathFd::Use& held) {
  const absl::StatusOr<struct stat> st = fs::Stat(held);
  if (!st.ok()) return Fail(st.status());          // XFS says EIO once it has shut down
  if (st->st_nlink == 0) node.path_fd.Keep(held);  // nothing else leads to it
  absl::MutexLock lock(&node.state);
  node.orphan = st->st_nlink == 0;
}

absl::Status Volume::Impl::SyncBacking() {
  SALIUS_RETURN_IF_ERROR(SyncVolume(sync_fd.get(), dir.lock_fd));
  return dir.CheckSynced();
}

absl::Status Volume::Impl::SyncApplied() {
  const auto no_failure = [this] {
    absl::MutexLock lock(&failure_mu);
    return failure;
  };
  SALIUS_RETURN_IF_ERROR(no_failure());
  DropCoveredLinks();
  const std::vector<std::pair<PinnedNode, uint64_t>> bulk = BulkBeforeSync();
  SALIUS_RETURN_IF_ERROR(SyncBacking());
  SALIUS_RETURN_IF_ERROR(no_failure());  // an fsync meanwhile may have got an error instead
  BulkAfterSync(bulk);
  return absl::OkStatus();
}

}  // namespace salius
