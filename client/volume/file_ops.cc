#include "client/volume/file_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "client/volume/fetch_policy.h"
#include "common/check.h"
#include "common/file.h"
#include "common/limits.h"

namespace salius {
namespace {

// One call copies at most this much, so that it answers in reasonable time; callers loop.
constexpr size_t kMaxCopyBytes = size_t{8} << 20;
constexpr size_t kCopyPieceBytes = size_t{1} << 20;

// How often a reader tries beside an apply before it takes the lock.
constexpr int kReadsBeside = 3;

// A body of 128 KiB takes three of the largest datagrams, the third for its last 400 bytes; one of
// 124 KiB takes two. For a large write that saves more than the additional record costs.
constexpr size_t kLargeWrite = size_t{512} << 10;
constexpr size_t kPieceOfLarge = size_t{124} << 10;
static_assert(kPieceOfLarge <= kMaxRecordBody &&
              kPieceOfLarge + 1024 <= 2 * kDatagramPayloadLoopback);

// Memory for a thread's next body. The memory into which a body is copied was last used a
// checkpoint ago and is in no cache; the locks after the copy would wait for it. So it is fetched
// while the record before is on its way.
class NextBody {
 public:
  std::string Take(std::string_view data) {
    std::string body = std::exchange(memory_, std::string());
    // A body lives until a checkpoint, with its whole capacity.
    if (body.capacity() > 2 * data.size()) body = std::string();
    body.assign(data);
    return body;
  }
  // Fetches memory for a next body of the same length.
  void Prepare(size_t bytes) {
    constexpr size_t kCacheLine = 64;
    if (bytes > kMost) return;
    memory_.reserve(bytes);
    for (size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(memory_.data() + at, 1);
  }

 private:
  static constexpr size_t kMost = size_t{16} << 10;  // more would not arrive in time
  std::string memory_;
};

}  // namespace

absl::Status FileOps::Read(Handle& handle, uint64_t offset, size_t size, std::string* out) {
  out->clear();
  if (offset > static_cast<uint64_t>(INT64_MAX) - size) return ErrnoStatus(EINVAL, "read");
  absl::Mutex& content = handle.node.content;
  for (int attempt = 1;; ++attempt) {
    SALIUS_ASSIGN_OR_RETURN(bool whole, ReadOnce(handle, offset, size, out));
    if (!whole && attempt > kReadsBeside) {
      if (!content.ReaderTryLock()) {
        std::this_thread::yield();
        continue;
      }
      const absl::StatusOr<bool> quiet = ReadOnce(handle, offset, size, out);
      content.ReaderUnlock();
      SALIUS_ASSIGN_OR_RETURN(whole, quiet);
    }
    if (whole) return absl::OkStatus();
  }
}

absl::StatusOr<bool> FileOps::ReadOnce(Handle& handle, uint64_t offset, size_t size,
                                       std::string* out) {
  Node& node = handle.node;
  std::vector<Extent> extents;
  bool changed = false;
  uint64_t end = 0;
  Seq known = 0;
  {
    absl::MutexLock lock(&node.state);
    const NodeChanges::Records& records = node.seen_records();
    changed = records.unapplied_data > 0;
    end = records.size;
    known = std::max(records.last_seq, records.applied_seq);
    if (changed) {
      size = offset >= end ? 0 : std::min<uint64_t>(size, end - offset);
      extents = records.extents.In(offset, size);
    }
  }
  out->resize(size);
  if (changed && AreWhole(extents, offset, size)) {
    // No page need be fetched.
    Overlay(extents, offset, absl::MakeSpan(out->data(), size));
    return true;
  }
  SALIUS_ASSIGN_OR_RETURN(const size_t count,
                          backing_.Pread(handle.fd->get(), out->data(), size, offset));
  if (changed) {
    // It does not matter if some records were applied meanwhile, or one of them in part.
    memset(out->data() + count, 0, size - count);
    Overlay(extents, offset, absl::MakeSpan(out->data(), size));
    lanes_.NoteRead(node, offset, size);
  } else {
    out->resize(count);
  }
  absl::MutexLock lock(&node.state);
  return node.seen_records().applying_seq <= known;
}

absl::StatusOr<size_t> FileOps::Write(Handle& handle, uint64_t offset, std::string_view data,
                                      bool append, Contract contract) {
  SALIUS_ASSIGN_OR_RETURN(const Ticket ticket, StartWrite(handle, offset, data, append, contract));
  SALIUS_RETURN_IF_ERROR(Await(ticket));
  return ticket.bytes;
}

absl::StatusOr<Ticket> FileOps::StartWrite(Handle& handle, uint64_t offset, std::string_view data,
                                           bool append, Contract contract) {
  if (!handle.writable()) return ErrnoStatus(EBADF, "write");
  SALIUS_RETURN_IF_ERROR(health_.Data());
  if (data.empty()) return Ticket();
  SALIUS_RETURN_IF_ERROR(AsDataError(memory_.AwaitRoom(*stream_)));
  const bool durable = rule_.WriteWaits(handle, contract);
  Node& node = handle.node;
  size_t written = 0;
  Seq wait_for = 0;
  {
    absl::MutexLock lock(&node.stream);
    SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, fds_.ForWriting(node));
    if (append) {
      SALIUS_ASSIGN_OR_RETURN(offset, issuer_.LogicalSize(node));
    }
    SALIUS_ASSIGN_OR_RETURN(written, room_.FitLength(node, fd->get(), offset, data.size()));
    data = data.substr(0, written);
    SALIUS_ASSIGN_OR_RETURN(SpaceGuard::Hold end,
                            room_.ReserveEnd(node, fd->get(), offset, WriteRoom::End::kStays));
    SALIUS_ASSIGN_OR_RETURN(SpaceGuard::Hold room, room_.Reserve(node, fd->get(), offset, written));
    if (durable) {
      node.writing().unsynced_bytes = 0;  // this write waits for all before it
    } else {
      SALIUS_ASSIGN_OR_RETURN(const bool short_overwrite, IsShortOverwrite(node, offset, written));
      if (!short_overwrite) SALIUS_RETURN_IF_ERROR(bulk_.CountUnsynced(node, written));
    }
    SALIUS_ASSIGN_OR_RETURN(const bool direct, bulk_.PrepareDirect(node));
    if (direct) {
      SALIUS_RETURN_IF_ERROR(bulk_.DirectWrite(node, fd->get(), offset, data));
      room.Release();
      if (durable && node.writing().bulk) {
        SALIUS_ASSIGN_OR_RETURN(wait_for, bulk_.Sync(node));
      }
    } else {
      if (IsPartialWrite(offset, written)) {
        SALIUS_RETURN_IF_ERROR(lanes_.BeforeWrite(*stream_, fd->get(), offset, written));
      }
      // Where every write has its fsync, the next fsync is near: the write is sent at once, to be
      // acknowledged by then.
      SendWhen when = SendWhen::kSoon;
      if (!durable) {
        NodeChanges::Writing& writing = node.writing();
        const bool alone = ++writing.plain_writes == 1 && writing.plain_writes_before == 1;
        when = alone ? SendWhen::kNow : SendWhen::kLater;
      }
      SALIUS_ASSIGN_OR_RETURN(wait_for, IssueWrite(node, offset, data, when));
    }
  }
  return Ticket{written, durable ? wait_for : 0};
}

absl::StatusOr<bool> FileOps::IsShortOverwrite(Node& node, uint64_t offset, uint64_t bytes) {
  if (bytes >= Backing::kPageBytes || node.seen_writing().bulk) return false;
  SALIUS_ASSIGN_OR_RETURN(const uint64_t size, issuer_.LogicalSize(node));
  return offset < size;
}

absl::StatusOr<Seq> FileOps::IssueWrite(Node& node, uint64_t offset, std::string_view data,
                                        SendWhen when) {
  SALIUS_RETURN_IF_ERROR(issuer_.EnsureIdLocked(node));
  const size_t piece = data.size() > kLargeWrite ? kPieceOfLarge : kMaxRecordBody;
  Seq last = 0;
  thread_local NextBody next_body;
  for (size_t at = 0; at < data.size(); at += piece) {
    RecordDraft draft;
    draft.op = Op::kWrite;
    draft.arg0 = offset + at;
    draft.when = when;
    draft.body = next_body.Take(data.substr(at, piece));
    SALIUS_ASSIGN_OR_RETURN(const RecordRef record, issuer_.IssueOn(node, std::move(draft)));
    last = record->seq();
  }
  next_body.Prepare(data.size());
  return last;
}

absl::StatusOr<Ticket> FileOps::StartFsync(Handle& handle) {
  if (rule_.FsyncWaits(handle)) return StartDsync(handle);
  // The stream of records has their order, and nothing of a relaxed mount goes past it.
  SALIUS_RETURN_IF_ERROR(health_.Data());
  return Ticket();
}

absl::Status FileOps::Osync() {
  SALIUS_RETURN_IF_ERROR(health_.Data());
  return bulk_.Order();
}

absl::StatusOr<Ticket> FileOps::StartDsync(Handle& handle) {
  SALIUS_RETURN_IF_ERROR(health_.Data());
  Node& node = handle.node;
  Seq wait_for = 0;
  {
    absl::MutexLock lock(&node.stream);
    {
      absl::MutexLock state(&node.state);
      // Nothing brings a file without a name back: its data need not outlive a crash.
      if (node.orphan) return Ticket();
      const NodeChanges::Records& records = node.seen_records();
      wait_for = std::max(records.last_seq, records.name_seq);
    }
    if (!node.was_changed()) return Ticket{0, wait_for};
    NodeChanges::Writing& writing = node.writing();
    if (writing.bulk) {
      SALIUS_ASSIGN_OR_RETURN(const Seq synced, bulk_.Sync(node));
      wait_for = std::max(wait_for, synced);
    }
    writing.unsynced_bytes = 0;
    writing.plain_writes_before = std::exchange(writing.plain_writes, 0);
  }
  return Ticket{0, wait_for};
}

Seq FileOps::LastChange(Node& node) {
  absl::MutexLock lock(&node.state);
  return node.seen_records().last_seq;
}

absl::Status FileOps::Await(const Ticket& ticket) {
  if (ticket.settled()) return absl::OkStatus();
  issuer_.CountWait();
  return AsDataError(stream_->WaitDurable(ticket.durable_first));
}

void FileOps::WhenDurable(const Ticket& ticket, DurableCallback done) {
  issuer_.CountWait();
  stream_->WhenDurable(ticket.durable_first,
                       [done = std::move(done)](const absl::Status& status) mutable {
                         std::move(done)(AsDataError(status));
                       });
}

void FileOps::NotifyDurable(const Ticket& ticket, DurableCallback done) {
  issuer_.CountWait();
  stream_->NotifyDurable(ticket.durable_first,
                         [done = std::move(done)](const absl::Status& status) mutable {
                           std::move(done)(AsDataError(status));
                         });
}

absl::Status FileOps::Truncate(Node& node, uint64_t size) {
  if (node.is_dir()) return ErrnoStatus(EISDIR, "truncate");
  if (!node.is_regular() || size > static_cast<uint64_t>(INT64_MAX)) {
    return ErrnoStatus(EINVAL, "truncate");
  }
  SALIUS_RETURN_IF_ERROR(health_.Data());
  absl::MutexLock lock(&node.stream);
  SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, fds_.ForWriting(node));
  const auto close_idle = absl::MakeCleanup([&] { NodeFds::CloseIdle(node); });
  if (size > node.seen_writing().checked_size && !backing_.SizeFits(fd->get(), size)) {
    return ErrnoStatus(EFBIG, "truncate");
  }
  SALIUS_ASSIGN_OR_RETURN(const bool nameless, bulk_.PrepareNameless(node));
  absl::Status status;
  if (nameless) {
    status = backing_.Truncate(fd->get(), size);
    bulk_.NoteDirect(node, 0);
  } else {
    SALIUS_ASSIGN_OR_RETURN(const SpaceGuard::Hold end,
                            room_.ReserveEnd(node, fd->get(), size, WriteRoom::End::kMoves));
    status = issuer_.EnsureIdLocked(node);
    if (status.ok()) {
      RecordDraft draft;
      draft.op = Op::kTruncate;
      draft.arg0 = size;
      draft.when = SendWhen::kLater;
      status = issuer_.IssueOn(node, std::move(draft)).status();
    }
  }
  return status;
}

absl::Status FileOps::Fallocate(Handle& handle, int mode, uint64_t offset, uint64_t length) {
  constexpr int kKnown = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
  const bool punch = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
  if ((mode & ~kKnown) != 0) return ErrnoStatus(EOPNOTSUPP, "fallocate");
  if (punch && mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
    return ErrnoStatus(EOPNOTSUPP, "fallocate");
  }
  if (!handle.writable()) return ErrnoStatus(EBADF, "fallocate");
  if (length == 0) return ErrnoStatus(EINVAL, "fallocate");
  SALIUS_RETURN_IF_ERROR(health_.Data());
  Node& node = handle.node;
  absl::MutexLock lock(&node.stream);
  SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, fds_.ForWriting(node));
  SALIUS_ASSIGN_OR_RETURN(const uint64_t fits, room_.FitLength(node, fd->get(), offset, length));
  if (fits < length) return ErrnoStatus(EFBIG, "fallocate");
  // It changes which blocks are allocated, so every record before must be applied.
  SALIUS_RETURN_IF_ERROR(issuer_.AwaitNode(node));
  if (!punch) SALIUS_RETURN_IF_ERROR(room_.Allocate(fd->get(), offset, length));
  SALIUS_ASSIGN_OR_RETURN(const bool nameless, bulk_.PrepareNameless(node));
  if (nameless) {
    const absl::Status done = backing_.Fallocate(fd->get(), mode, offset, length);
    bulk_.NoteDirect(node, 0);  // after an error a part may have been allocated
    return done;
  }
  SALIUS_RETURN_IF_ERROR(issuer_.EnsureIdLocked(node));
  RecordDraft draft;
  draft.op = Op::kFallocate;
  draft.arg0 = offset;
  draft.arg1 = length;
  draft.arg2 = static_cast<uint64_t>(mode);
  draft.result = std::make_shared<ApplyResult>();
  SALIUS_ASSIGN_OR_RETURN(const RecordRef record, issuer_.IssueOn(node, std::move(draft)));
  // This waits under the lock: no record may build on this one before it has succeeded.
  return issuer_.AwaitResult(record);
}

absl::StatusOr<uint64_t> FileOps::Lseek(Handle& handle, uint64_t offset, int whence) {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return ErrnoStatus(EINVAL, "lseek");
  const absl::Status current = issuer_.AwaitNodeBriefly(handle.node);
  if (absl::IsDeadlineExceeded(current)) {
    // While the disk hangs, holes are not known: everything counts as data.
    absl::MutexLock lock(&handle.node.state);
    const NodeChanges::Records& records = handle.node.seen_records();
    if (records.unapplied_data > 0) {
      if (offset >= records.size) return ErrnoStatus(ENXIO, "lseek");
      return whence == SEEK_DATA ? offset : records.size;
    }
  } else {
    SALIUS_RETURN_IF_ERROR(current);
  }
  return backing_.Seek(handle.fd->get(), offset, whence);
}

absl::StatusOr<size_t> FileOps::CopyFileRange(Handle& in, uint64_t in_offset, Handle& out,
                                              uint64_t out_offset, size_t length) {
  if (!in.node.is_regular() || !out.node.is_regular()) return ErrnoStatus(EINVAL, "copy");
  if ((in.flags & O_ACCMODE) == O_WRONLY || !out.writable()) return ErrnoStatus(EBADF, "copy");
  length = std::min(length, kMaxCopyBytes);
  if (&in.node == &out.node && in_offset < out_offset + length && out_offset < in_offset + length) {
    return ErrnoStatus(EINVAL, "copy onto itself");
  }
  size_t copied = 0;
  while (copied < length) {
    std::string piece;
    SALIUS_RETURN_IF_ERROR(
        Read(in, in_offset + copied, std::min(length - copied, kCopyPieceBytes), &piece));
    if (piece.empty()) break;
    const size_t wanted = piece.size();
    const absl::StatusOr<size_t> written =
        Write(out, out_offset + copied, std::move(piece), /*append=*/false, Contract::kPlain);
    if (!written.ok()) {
      if (copied > 0) break;  // the copied bytes count; the caller's next call gets the error
      return written.status();
    }
    copied += *written;
    if (*written < wanted) break;
  }
  return copied;
}

}  // namespace salius
