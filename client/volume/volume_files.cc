// Open files: reads over which patches are laid, writes, fsync, space, copies.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "client/volume/volume_impl.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"
#include "storage/apply.h"
#include "storage/block_calls.h"
#include "storage/fs_calls.h"

namespace salius {
namespace {

// One call copies at most this much, so that it answers in reasonable time; callers loop.
constexpr size_t kMaxCopyBytes = size_t{8} << 20;
constexpr size_t kCopyPieceBytes = size_t{1} << 20;

// A disk hangs if no file's writes are applied for this long.
constexpr absl::Duration kHanging = absl::Seconds(1);

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

absl::Status Volume::Impl::RoomForFile(uid_t user) {
  if (file_fds.HasRoom(user)) return absl::OkStatus();
  // A closed file keeps its descriptor until its writes are applied. So the caller waits for that.
  // A volume that failed, or whose disk hangs, gives none back.
  const Seq issued = pipe.load()->watermarks().issued;
  const absl::Status applied = pipe.load()->WaitAppliedFor(issued, kBriefNs);
  if (file_fds.HasRoom(user)) return absl::OkStatus();
  const bool hangs = absl::IsDeadlineExceeded(applied);
  if (hangs && file_fds.WaitForRoom(user, kHanging)) return absl::OkStatus();
  return NoRoom(user);
}

absl::Status Volume::Impl::NoRoom(uid_t user) {
  if (file_fds.AllTaken()) {
    if (!told_no_room.exchange(true)) {
      SLOG_WARN(
          "no more files can be opened: those that are open have all {} descriptors that they may "
          "have. Close some, or mount again with a higher limit (ulimit -n, LimitNOFILE=)",
          file_fds.limit());
    }
  } else if (!told_share.exchange(true)) {
    SLOG_WARN(
        "user {} can open no more files: it has as many of the {} descriptors for open files as "
        "are left for others. Close some, or mount again with a higher limit (ulimit -n, "
        "LimitNOFILE=)",
        user, file_fds.limit());
  }
  return ErrnoStatus(ENFILE, "open");
}

absl::StatusOr<Handle*> Volume::Impl::OpenFile(Node& node, int flags, uid_t opener) {
  SALIUS_RETURN_IF_ERROR(RoomForFile(opener));
  return OpenNode(node, flags, opener);
}

absl::StatusOr<Handle*> Volume::Impl::OpenNode(Node& node, int flags, uid_t opener) {
  if (node.is_dir()) return ErrnoStatus(EISDIR, "open");
  if (S_ISLNK(node.type)) return ErrnoStatus(ELOOP, "open");
  if (!node.is_regular()) return ErrnoStatus(ENXIO, "open");
  auto handle = std::make_unique<Handle>(node, flags);
  if (handle->writable()) SALIUS_RETURN_IF_ERROR(NameHealth());
  AddHandle(*handle);
  absl::Status opened = OpenBacking(*handle, opener);
  if (opened.ok() && (flags & O_TRUNC) != 0 && handle->writable()) opened = Truncate(node, 0);
  if (!opened.ok()) {
    Release(handle.release());
    return opened;
  }
  return handle.release();
}

absl::StatusOr<Handle*> Volume::Impl::OpenDir(Node& node, uid_t opener) {
  if (!node.is_dir()) return ErrnoStatus(ENOTDIR, "opendir");
  SALIUS_RETURN_IF_ERROR(RoomForFile(opener));
  const int atime = file_fds.AtimeFlag(FileFds::Kind::kDir);
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd,
                          OpenAt(node.path_fd.get(), ".", O_RDONLY | O_DIRECTORY | atime));
  auto handle = std::make_unique<Handle>(node, O_RDONLY | O_DIRECTORY);
  handle->fd = file_fds.Share(std::move(fd), FileFds::Kind::kDir, opener);
  AddHandle(*handle);
  return handle.release();
}

void Volume::Impl::AddHandle(Handle& handle) {
  table.Pin(handle.node);
  absl::MutexLock lock(&handle.node.state);
  ++handle.node.handles;
  if (handle.direct()) ++handle.node.direct_handles;
}

absl::Status Volume::Impl::OpenBacking(Handle& handle, uid_t opener) {
  if (handle.writable()) {
    SALIUS_ASSIGN_OR_RETURN(handle.fd, WriteFd(handle.node, opener));
    return absl::OkStatus();
  }
  const bool asked = (handle.flags & O_NOATIME) != 0;  // has a descriptor of its own
  const FileFds::Kind kind = asked ? FileFds::Kind::kNoAtime : FileFds::Kind::kFile;
  if (!asked) {
    absl::MutexLock lock(&handle.node.state);
    handle.fd = handle.node.rw_fd;
  }
  if (handle.fd != nullptr) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, Reopen(handle.node.path_fd.get(),
                                              O_RDONLY | file_fds.AtimeFlag(kind)));
  handle.fd = file_fds.Share(std::move(fd), kind, opener);
  return absl::OkStatus();
}

void Volume::Impl::Release(Handle* handle) {
  Node& node = handle->node;
  bool last = false;
  {
    absl::MutexLock lock(&node.state);
    --node.handles;
    if (handle->direct()) --node.direct_handles;
    last = node.handles == 0;
  }
  delete handle;
  if (last) {
    DropHiddenLink(node);
    CloseIdle(node);
  }
  table.Unpin(node);
}

// Has the link removed when a checkpoint covers all records issued by the last close: the link must
// outlive every record of the file that recovery may still replay.
void Volume::Impl::DropHiddenLink(Node& node) {
  {
    absl::MutexLock lock(&node.state);
    if (!node.hidden_link) return;
  }
  NoteHiddenLink(node, pipe.load()->watermarks().issued);
  chores->Do([this] { DropCoveredLinks(); });
}

std::vector<PinnedNode> Volume::Impl::ClosedNamelessFiles() {
  constexpr size_t kMost = 1000;
  std::vector<PinnedNode> files;
  absl::MutexLock lock(&bulk_mu);
  for (auto& [node, link] : hidden_links) {
    if (files.size() == kMost) break;
    absl::MutexLock state(&node->state);
    if (node->handles > 0 || !node->hidden_link) continue;
    table.Pin(*node);
    files.emplace_back(table, node);
  }
  return files;
}

void Volume::Impl::NoteHiddenLink(Node& node, Seq after) {
  absl::MutexLock lock(&bulk_mu);
  const auto [place, fresh] = hidden_links.try_emplace(&node);
  if (fresh) {
    table.Pin(node);
    place->second.node = PinnedNode(table, &node);
  }
  place->second.after = std::max(place->second.after, after);
  next_hidden_link = std::min(next_hidden_link, after);
}

void Volume::Impl::DropCoveredLinks() {
  RecordStream* const pipe_or_null = pipe.load();
  if (pipe_or_null == nullptr) return;
  const Seq checkpoint = pipe_or_null->watermarks().checkpoint;
  std::vector<HiddenLink> covered;  // their pins are released after the lock
  {
    absl::MutexLock lock(&bulk_mu);
    if (next_hidden_link > checkpoint) return;  // cheap: files may be many, and each close calls it
    next_hidden_link = UINT64_MAX;
    absl::erase_if(hidden_links, [&](auto& entry) {
      bulk_mu.AssertHeld();
      HiddenLink& link = entry.second;
      if (link.after <= checkpoint) {
        covered.push_back(std::move(link));
        return true;
      }
      next_hidden_link = std::min(next_hidden_link, link.after);
      return false;
    });
  }
  for (HiddenLink& link : covered) {
    // While `stream` is held, `last_seq` covers every record of the file. It is only tried: its
    // holder may itself be waiting for a checkpoint.
    if (!link.node->stream.TryLock()) {
      NoteHiddenLink(*link.node, link.after);
      continue;
    }
    DropCoveredLink(*link.node, checkpoint);
    link.node->stream.Unlock();
  }
}

void Volume::Impl::DropCoveredLink(Node& node, Seq checkpoint) {
  Seq last = 0;
  {
    absl::MutexLock state(&node.state);
    // An open file comes back here at its next last close.
    if (node.handles > 0 || !node.hidden_link) return;
    last = std::max(node.last_seq, node.born_seq);
  }
  if (last > checkpoint) return NoteHiddenLink(node, last);  // changed while it was closed
  const PathFd::Use held = node.path_fd.get();
  if (held < 0) return;
  const absl::Status removed = fs::Unlink(open_dir.get(), IdName(node.id.load()), 0);
  if (!removed.ok()) {
    SLOG_WARN("a nameless file stays in .salius/open: {}", removed.ToString());
    return;
  }
  {
    absl::MutexLock state(&node.state);
    node.hidden_link = false;
  }
  UpdateOrphan(node, held);
  EndBulkOfNameless(node);
}

absl::Status Volume::Impl::Read(Handle& handle, uint64_t offset, size_t size, std::string* out) {
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

absl::StatusOr<bool> Volume::Impl::ReadOnce(Handle& handle, uint64_t offset, size_t size,
                                            std::string* out) {
  Node& node = handle.node;
  std::vector<RecordRef> patches;
  bool patched = false;
  uint64_t end = 0;
  Seq known = 0;
  {
    absl::MutexLock lock(&node.state);
    patched = node.unapplied_data > 0;
    end = node.size;
    known = std::max(node.last_seq, node.applied_seq);
    if (patched) patches = node.patches.Touching(offset, size);
  }
  if (patched) size = offset >= end ? 0 : std::min<uint64_t>(size, end - offset);
  out->resize(size);
  SALIUS_ASSIGN_OR_RETURN(const size_t count, PreadFull(handle.fd->get(), out->data(), size,
                                                        static_cast<int64_t>(offset)));
  if (patched) {
    // It does not matter if some patches were applied meanwhile, or one of them in part.
    memset(out->data() + count, 0, size - count);
    Overlay(patches, offset, absl::MakeSpan(out->data(), size));
  } else {
    out->resize(count);
  }
  absl::MutexLock lock(&node.state);
  return node.applying_seq <= known;
}

absl::StatusOr<size_t> Volume::Impl::Write(Handle& handle, uint64_t offset, std::string_view data,
                                           bool append, Contract contract) {
  SALIUS_ASSIGN_OR_RETURN(const Ticket ticket, StartWrite(handle, offset, data, append, contract));
  SALIUS_RETURN_IF_ERROR(Await(ticket));
  return ticket.bytes;
}

absl::StatusOr<Ticket> Volume::Impl::StartWrite(Handle& handle, uint64_t offset,
                                                std::string_view data, bool append,
                                                Contract contract) {
  if (!handle.writable()) return ErrnoStatus(EBADF, "write");
  SALIUS_RETURN_IF_ERROR(DataHealth());
  if (data.empty()) return Ticket();
  const bool durable = contract == Contract::kDurable || handle.contract() == Contract::kDurable;
  Node& node = handle.node;
  size_t written = 0;
  Seq wait_for = 0;
  {
    absl::MutexLock lock(&node.stream);
    SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, WriteFd(node));
    if (append) {
      SALIUS_ASSIGN_OR_RETURN(offset, LogicalSize(node));
    }
    SALIUS_ASSIGN_OR_RETURN(written, FitLength(node, fd->get(), offset, data.size()));
    data = data.substr(0, written);
    SALIUS_ASSIGN_OR_RETURN(SpaceGuard::Hold end, ReserveEnd(node, fd->get(), offset, End::kStays));
    SALIUS_ASSIGN_OR_RETURN(SpaceGuard::Hold room, ReserveSpace(node, fd->get(), offset, written));
    if (durable) {
      node.unsynced_bytes = 0;  // this write waits for all before it
    } else {
      SALIUS_RETURN_IF_ERROR(CountUnsynced(node, written));
    }
    SALIUS_ASSIGN_OR_RETURN(const bool direct, PrepareDirect(node));
    if (direct) {
      SALIUS_RETURN_IF_ERROR(DirectWrite(node, fd->get(), offset, data));
      room.Release();
      if (durable && node.bulk) {
        SALIUS_ASSIGN_OR_RETURN(wait_for, SyncBulk(node));
      }
    } else {
      // Where every write has its fsync, the next fsync is near: the write is sent at once, to be
      // acknowledged by then.
      SendWhen when = SendWhen::kSoon;
      if (!durable) {
        const bool alone = ++node.plain_writes == 1 && node.plain_writes_before == 1;
        when = alone ? SendWhen::kNow : SendWhen::kLater;
      }
      SALIUS_ASSIGN_OR_RETURN(wait_for, IssueWrite(node, offset, data, when));
    }
  }
  return Ticket{written, durable ? wait_for : 0};
}

absl::Status Volume::Impl::Await(const Ticket& ticket) {
  if (ticket.settled()) return absl::OkStatus();
  return AsDataError(pipe.load()->WaitDurable(ticket.durable_first));
}

absl::StatusOr<SpaceGuard::Hold> Volume::Impl::ReserveSpace(Node& node, int fd, uint64_t offset,
                                                            uint64_t length) {
  struct stat st {};
  if (space->needs_owner()) {
    SALIUS_ASSIGN_OR_RETURN(st, fs::Stat(fd));
  }
  return space->Reserve(fd, st.st_uid, st.st_gid, offset, length, [&]() -> absl::Status {
    std::vector<RecordRef> patches;
    {
      absl::MutexLock lock(&node.state);
      patches = node.patches.Touching(offset, length);
    }
    const bool only_writes = std::all_of(patches.begin(), patches.end(), [](const RecordRef& r) {
      return r->header().op == Op::kWrite;
    });
    return only_writes ? absl::OkStatus() : AwaitNode(node);
  });
}

absl::StatusOr<SpaceGuard::Hold> Volume::Impl::ReserveEnd(Node& node, int fd, uint64_t upto,
                                                          End end) {
  if (shared_block_bytes == 0) return SpaceGuard::Hold();
  SALIUS_ASSIGN_OR_RETURN(const uint64_t size, LogicalSize(node));
  if (end == End::kStays && upto <= size) return SpaceGuard::Hold();
  const uint64_t at = std::min(size, upto);
  if (at % shared_block_bytes == 0 || !fs::IsShared(fd, at)) return SpaceGuard::Hold();
  return ReserveSpace(node, fd, at, 1);
}

absl::StatusOr<Seq> Volume::Impl::IssueWrite(Node& node, uint64_t offset, std::string_view data,
                                             SendWhen when) {
  SALIUS_RETURN_IF_ERROR(EnsureIdLocked(node));
  const size_t piece = data.size() > kLargeWrite ? kPieceOfLarge : kMaxRecordBody;
  Seq last = 0;
  thread_local NextBody next_body;
  for (size_t at = 0; at < data.size(); at += piece) {
    RecordDraft draft;
    draft.op = Op::kWrite;
    draft.arg0 = offset + at;
    draft.when = when;
    draft.body = next_body.Take(data.substr(at, piece));
    SALIUS_ASSIGN_OR_RETURN(const RecordRef record, IssueOn(node, std::move(draft)));
    last = record->seq();
  }
  next_body.Prepare(data.size());
  return last;
}

absl::StatusOr<uint64_t> Volume::Impl::FitLength(Node& node, int fd, uint64_t offset,
                                                 uint64_t length) {
  constexpr uint64_t kMax = static_cast<uint64_t>(INT64_MAX);
  if (offset > kMax) return ErrnoStatus(EINVAL, "offset");
  uint64_t end = length > kMax - offset ? kMax : offset + length;
  if (end <= node.checked_size) return end - offset;
  if (fs::SizeFits(fd, end)) {
    node.checked_size = end;
    return end - offset;
  }
  if (!fs::SizeFits(fd, offset + 1)) return ErrnoStatus(EFBIG, "file too large");
  uint64_t fits = offset + 1;
  while (end - fits > 1) {
    const uint64_t middle = fits + (end - fits) / 2;
    (fs::SizeFits(fd, middle) ? fits : end) = middle;
  }
  return fits - offset;
}

absl::StatusOr<Ticket> Volume::Impl::StartFsync(Node& node) {
  SALIUS_RETURN_IF_ERROR(DataHealth());
  Seq wait_for = 0;
  {
    absl::MutexLock lock(&node.stream);
    {
      absl::MutexLock state(&node.state);
      // Nothing brings a file without a name back: its data need not outlive a crash.
      if (node.orphan) return Ticket();
      wait_for = node.last_seq;
    }
    if (node.bulk) {
      SALIUS_ASSIGN_OR_RETURN(wait_for, SyncBulk(node));
    }
    node.unsynced_bytes = 0;
    node.plain_writes_before = std::exchange(node.plain_writes, 0);
  }
  return Ticket{0, wait_for};
}

absl::Status Volume::Impl::Fallocate(Handle& handle, int mode, uint64_t offset, uint64_t length) {
  constexpr int kKnown = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
  const bool punch = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
  if ((mode & ~kKnown) != 0) return ErrnoStatus(EOPNOTSUPP, "fallocate");
  if (punch && mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)) {
    return ErrnoStatus(EOPNOTSUPP, "fallocate");
  }
  if (!handle.writable()) return ErrnoStatus(EBADF, "fallocate");
  if (length == 0) return ErrnoStatus(EINVAL, "fallocate");
  SALIUS_RETURN_IF_ERROR(DataHealth());
  Node& node = handle.node;
  absl::MutexLock lock(&node.stream);
  SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, WriteFd(node));
  SALIUS_ASSIGN_OR_RETURN(const uint64_t fits, FitLength(node, fd->get(), offset, length));
  if (fits < length) return ErrnoStatus(EFBIG, "fallocate");
  // It changes which blocks are allocated, so every record before must be applied.
  SALIUS_RETURN_IF_ERROR(AwaitNode(node));
  if (!punch) {
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, fs::Stat(fd->get()));
    SALIUS_RETURN_IF_ERROR(space->Allocate(fd->get(), st.st_uid, st.st_gid, offset, length));
  }
  SALIUS_ASSIGN_OR_RETURN(const bool nameless, PrepareNameless(node));
  if (nameless) {
    const absl::Status done = fs::Fallocate(fd->get(), mode, offset, length);
    NoteDirect(node, 0);  // after an error a part may have been allocated
    return done;
  }
  SALIUS_RETURN_IF_ERROR(EnsureIdLocked(node));
  RecordDraft draft;
  draft.op = Op::kFallocate;
  draft.arg0 = offset;
  draft.arg1 = length;
  draft.arg2 = static_cast<uint64_t>(mode);
  draft.result = std::make_shared<ApplyResult>();
  SALIUS_ASSIGN_OR_RETURN(const RecordRef record, IssueOn(node, std::move(draft)));
  // This waits under the lock: no record may build on this one before it has succeeded.
  return AwaitResult(record).status();
}

absl::StatusOr<uint64_t> Volume::Impl::Lseek(Handle& handle, uint64_t offset, int whence) {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) return ErrnoStatus(EINVAL, "lseek");
  const absl::Status current = AwaitNodeBriefly(handle.node);
  if (absl::IsDeadlineExceeded(current)) {
    // While the disk hangs, holes are not known: everything counts as data.
    absl::MutexLock lock(&handle.node.state);
    if (handle.node.unapplied_data > 0) {
      if (offset >= handle.node.size) return ErrnoStatus(ENXIO, "lseek");
      return whence == SEEK_DATA ? offset : handle.node.size;
    }
  } else {
    SALIUS_RETURN_IF_ERROR(current);
  }
  return fs::Seek(handle.fd->get(), offset, whence);
}

absl::StatusOr<size_t> Volume::Impl::CopyFileRange(Handle& in, uint64_t in_offset, Handle& out,
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
