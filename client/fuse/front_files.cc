// Open files: open, create, read, write, sync, space.
#include <fcntl.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "client/fuse/front.h"
#include "client/fuse/kernel_order.h"
#include "common/check.h"
#include "common/file.h"

namespace salius {
namespace {

// Measures the seconds since it was made.
class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Returns whether a write with these flags waits. O_SYNC contains O_DSYNC's bit.
bool IsSync(uint32_t flags) { return (flags & O_DSYNC) != 0; }

// Returns whether the file was opened O_RDWR, which a shared map that is stored into needs.
bool ReadsAndWrites(uint32_t flags) { return (flags & O_ACCMODE) == O_RDWR; }

// Leaves out the flags whose work open(2) has done and the volume must not repeat.
int VolumeFlags(uint32_t flags) {
  return static_cast<int>(flags) & ~(O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC);
}

void Read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info* fi) noexcept {
  thread_local std::string buffer;
  Front& front = FrontOf(req);
  Node* const node = NodeOf(req, ino);
  if (node == nullptr) return;
  Handle* const file = FileOf(req, fi);
  if (file == nullptr) return;
  // The kernel names the owner of locks when it reads past its cache, and not when it fills pages.
  if (fi->lock_owner == 0 && Front::StateOf(*node).NoteFill()) front.CountMapped();
  const absl::Status status =
      front.volume().files().Read(*file, static_cast<uint64_t>(offset), size, &buffer);
  if (!status.ok()) {
    fuse_reply_err(req, front.Errno(status));
    return;
  }
  FrontMetrics::Count(front.metrics().read_bytes, buffer.size());
  fuse_reply_buf(req, buffer.data(), buffer.size());
}

void Release(fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) noexcept {
  Node* const node = NodeOf(req, ino);
  if (node == nullptr || FileOf(req, fi) == nullptr) return;
  Front::StateOf(*node).Close(ReadsAndWrites(static_cast<uint32_t>(fi->flags)));
  FrontOf(req).DropFile(fi->fh);
  fuse_reply_err(req, 0);
}

void Fsync(fuse_req_t req, fuse_ino_t ino, int, fuse_file_info* fi) noexcept {
  Front& front = FrontOf(req);
  Handle* const file = FileOf(req, fi);
  if (file == nullptr) return;
  front.CheckEarly(*file, static_cast<uint32_t>(fuse_req_ctx(req)->pid));
  const Stopwatch watch;
  const auto answer = [&front, req, ino, watch](const absl::Status& status) {
    KernelOrder::Pass(ino);
    front.metrics().fsync_seconds.Observe(watch.Seconds());
    fuse_reply_err(req, status.ok() ? 0 : front.Errno(status));
  };
  const absl::StatusOr<Ticket> ticket = front.volume().files().StartFsync(*file);
  if (!ticket.ok()) return answer(ticket.status());
  front.AnswerWhenDurable(*ticket, answer);
}

// Removes privileges for a change whose request does not say whether the caller keeps the mode
// bits.
absl::Status KillPrivileges(fuse_req_t req, Node& node, fuse_ino_t ino) {
  if (Front::StateOf(node).known_unprivileged()) return absl::OkStatus();
  const fuse_in_header header = CallerHeader(req);
  return FrontOf(req).KillPrivileges(node, ino, header, /*mode_bits=*/!CallerIsRoot(header));
}

void Fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
               fuse_file_info* fi) noexcept {
  Front& front = FrontOf(req);
  Node* const node = NodeOf(req, ino);
  if (node == nullptr) return;
  Handle* const file = FileOf(req, fi);
  if (file == nullptr) return;
  absl::Status status = KillPrivileges(req, *node, ino);
  if (status.ok()) {
    status = front.volume().files().Fallocate(*file, mode, static_cast<uint64_t>(offset),
                                              static_cast<uint64_t>(length));
  }
  fuse_reply_err(req, status.ok() ? 0 : front.Errno(status));
}

// Answers lseek of a file whose shared map is stored into: everything counts as data, because the
// kernel's pages are newer than the file, and its holes may be filled there.
absl::StatusOr<uint64_t> SeekInData(Front& front, Node& node, uint64_t offset, int whence) {
  SALIUS_ASSIGN_OR_RETURN(const struct stat attr, front.volume().attrs().GetAttr(node));
  const uint64_t size = static_cast<uint64_t>(attr.st_size);
  if (offset >= size) return ErrnoStatus(ENXIO, "lseek");
  return whence == SEEK_DATA ? offset : size;
}

void DoLseek(fuse_req_t req, Node& node, Handle& file, uint64_t offset, int whence) {
  Front& front = FrontOf(req);
  const OpenState state = Front::StateOf(node);
  const absl::StatusOr<uint64_t> found = state.stored() && state.MayHaveDirtyPages()
                                             ? SeekInData(front, node, offset, whence)
                                             : front.volume().files().Lseek(file, offset, whence);
  if (found.ok()) {
    fuse_reply_lseek(req, static_cast<off_t>(*found));
  } else {
    fuse_reply_err(req, front.Errno(found.status()));
  }
}

void Lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, fuse_file_info* fi) noexcept {
  Front& front = FrontOf(req);
  Node* const node = NodeOf(req, ino);
  if (node == nullptr) return;
  Handle* const file = FileOf(req, fi);
  if (file == nullptr) return;
  const auto seek = [req, node, file, offset, whence] {
    DoLseek(req, *node, *file, static_cast<uint64_t>(offset), whence);
  };
  const OpenState state = Front::StateOf(*node);
  if ((whence != SEEK_DATA && whence != SEEK_HOLE) || offset < 0 || state.stored() ||
      !state.MayHaveDirtyPages()) {
    seek();
    return;
  }
  // It is not known whether a map is stored into before its first page comes.
  front.AfterPages(ino, static_cast<uint64_t>(offset), 0, seek);
}

void CopyFileRange(fuse_req_t req, fuse_ino_t, off_t in_offset, fuse_file_info* in,
                   fuse_ino_t out_ino, off_t out_offset, fuse_file_info* out, size_t length,
                   int flags) noexcept {
  if (flags != 0) {
    fuse_reply_err(req, EINVAL);
    return;
  }
  Front& front = FrontOf(req);
  Node* const out_node = NodeOf(req, out_ino);
  if (out_node == nullptr) return;
  Handle* const in_file = FileOf(req, in);
  if (in_file == nullptr) return;
  Handle* const out_file = FileOf(req, out);
  if (out_file == nullptr) return;
  if (const absl::Status killed = KillPrivileges(req, *out_node, out_ino); !killed.ok()) {
    fuse_reply_err(req, front.Errno(killed));
    return;
  }
  const absl::StatusOr<size_t> copied =
      front.volume().files().CopyFileRange(*in_file, static_cast<uint64_t>(in_offset), *out_file,
                                           static_cast<uint64_t>(out_offset), length);
  if (copied.ok()) {
    fuse_reply_write(req, *copied);
  } else {
    fuse_reply_err(req, front.Errno(copied.status()));
  }
}

}  // namespace

uint32_t Front::GrantOpen(Node& node, uint64_t nodeid, int flags) {
  const uint32_t bits = static_cast<uint32_t>(flags);
  const bool wants_direct =
      external_ != nullptr ||
      (map_direct_.load(std::memory_order_relaxed) && (IsSync(bits) || (flags & O_DIRECT) != 0));
  OpenState state = StateOf(node);
  const OpenState::Grant grant = state.Open(wants_direct, ReadsAndWrites(bits));
  if (grant.newly_mapped) CountMapped();
  // From now on a map may be stored into, so the kernel must ask for the blocks again.
  if (ReadsAndWrites(bits) && state.looked_sparse()) ForgetAttr(nodeid);
  // Writes of one file may come in parallel: the volume orders them under the node's lock.
  if (grant.direct) return FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
  return grant.keep_cache ? uint32_t{FOPEN_KEEP_CACHE} : 0;
}

void Front::RawOpen(const RawRequest& request) {
  const auto* in = request.args<fuse_open_in>();
  if (in == nullptr) {
    request.ReplyError(EIO);
    return;
  }
  Node* const target = NodeOf(request);
  if (target == nullptr) return;
  const uint64_t nodeid = request.header().nodeid;
  const absl::StatusOr<Handle*> opened =
      volume_.open_files().Open(*target, VolumeFlags(in->flags), OpenerOf(request.header()));
  if (!opened.ok()) {
    request.ReplyError(Errno(opened.status()));
    return;
  }
  if ((in->flags & O_TRUNC) != 0) {
    absl::Status status = KillPrivileges(*target, nodeid, request.header(),
                                         (in->open_flags & FUSE_OPEN_KILL_SUIDGID) != 0);
    if (status.ok()) status = volume_.attrs().SetAttr(*target, kSetSize, {}).status();
    if (!status.ok()) {
      volume_.open_files().Release(*opened);
      request.ReplyError(Errno(status));
      return;
    }
  }
  fuse_open_out out{};
  out.fh = KeepFile(**opened);
  out.open_flags = GrantOpen(*target, nodeid, static_cast<int>(in->flags));
  if (request.ReplyStruct(out) == ENOENT) {
    StateOf(*target).Close(ReadsAndWrites(in->flags));
    DropFile(out.fh);
  }
}

void Front::RawCreate(const RawRequest& request) {
  const auto* in = request.args<fuse_create_in>();
  const std::optional<std::string_view> name = request.name(sizeof(fuse_create_in));
  if (in == nullptr || !name.has_value()) {
    request.ReplyError(EIO);
    return;
  }
  Node* const dir = NodeOf(request);
  if (dir == nullptr) return;
  const Caller caller = CallerOf(request.header(), in->umask, in->mode);
  const int flags = static_cast<int>(in->flags);
  const absl::StatusOr<Created> created =
      request.opcode() == FUSE_TMPFILE
          ? volume_.names().CreateTmpFile(*dir, flags, in->mode, caller)
          : volume_.names().CreateFile(*dir, *name, flags & ~O_NOCTTY, in->mode, caller);
  if (!created.ok()) {
    request.ReplyError(Errno(created.status()));
    return;
  }
  struct {
    fuse_entry_out entry;
    fuse_open_out open;
  } out{};
  static_assert(sizeof(out) == sizeof(fuse_entry_out) + sizeof(fuse_open_out));
  const uint64_t nodeid = GiveLookup(*created->entry.node);
  out.open.fh = KeepFile(*created->handle);
  out.open.open_flags = GrantOpen(*created->entry.node, nodeid, flags);
  out.entry = ToEntryOut(created->entry, nodeid);  // of a file that is open
  if (request.ReplyStruct(out) == ENOENT) {
    StateOf(*created->entry.node).Close(ReadsAndWrites(in->flags));
    DropFile(out.open.fh);
    Forget(nodeid, 1);
  }
}

void Front::RawWrite(const RawRequest& request) {
  const auto* in = request.args<fuse_write_in>();
  const absl::Span<const uint8_t> data = request.rest(sizeof(fuse_write_in));
  if (in == nullptr || data.size() < in->size) {
    request.ReplyError(EIO);
    return;
  }
  const uint64_t nodeid = request.header().nodeid;
  Node* const node = NodeOf(request);
  if (node == nullptr) return;
  Handle* const file = FindFile(in->fh);
  if (file == nullptr) {
    request.ReplyError(EBADF);
    return;
  }
  // From the page cache (a shared map): the writer is not known. It removes no privileges; a store
  // through a map removes none on other file systems either. msync sends an FSYNC of its own.
  const bool from_cache = (in->write_flags & FUSE_WRITE_CACHE) != 0;
  // The kernel names the owner of locks when it writes past its cache.
  const bool past_cache = (in->write_flags & FUSE_WRITE_LOCKOWNER) != 0;
  OpenState state = StateOf(*node);
  if (from_cache) state.NoteStore();
  if (!from_cache) {
    const absl::Status killed = KillPrivileges(*node, nodeid, request.header(),
                                               (in->write_flags & FUSE_WRITE_KILL_SUIDGID) != 0);
    if (!killed.ok()) {
      request.ReplyError(Errno(killed));
      return;
    }
  }
  const bool sync = !from_cache && IsSync(in->flags);
  if (sync || file->contract() == Contract::kDurable) CheckEarly(*file, request.header().pid);
  const Stopwatch watch;
  const absl::StatusOr<Ticket> ticket = volume_.files().StartWrite(
      *file, in->offset, std::string_view(reinterpret_cast<const char*>(data.data()), in->size),
      /*append=*/false, sync ? Contract::kDurable : Contract::kPlain);
  if (!ticket.ok()) {
    request.ReplyError(Errno(ticket.status()));
    return;
  }
  const auto reply = [this, sync, watch, answer = request.answer(),
                      bytes = ticket->bytes](const absl::Status& status) {
    if (!status.ok()) {
      answer.Error(Errno(status));
      return;
    }
    // Counted first: a program that has the answer finds it in the metrics.
    FrontMetrics::Count(metrics_->written_bytes, bytes);
    if (sync) {
      FrontMetrics::Count(metrics_->sync_writes);
      metrics_->sync_write_seconds.Observe(watch.Seconds());
    }
    fuse_write_out out{};
    out.size = static_cast<uint32_t>(bytes);
    answer.Struct(out);
  };
  if (past_cache && state.filled()) {
    // A page that the kernel read just before is old now: it is dropped before the writer is
    // answered.
    AnswerAfterPages(nodeid, *in, *ticket, reply);
  } else {
    AnswerWhenDurable(*ticket, reply);
  }
}

void Front::AnswerAfterPages(uint64_t nodeid, const fuse_write_in& in, const Ticket& ticket,
                             std::function<void(const absl::Status&)> reply) {
  const auto answer = [this, nodeid, offset = in.offset, length = in.size,
                       reply = std::move(reply)](const absl::Status& status) {
    AfterPages(nodeid, offset, length, [reply, status] { reply(status); });
  };
  AnswerWhenDurable(ticket, answer);
}

bool Front::HandleRaw(const RawRequest& request) {
  switch (request.opcode()) {
    case FUSE_OPEN:
      RawOpen(request);
      return true;
    case FUSE_CREATE:
    case FUSE_TMPFILE:
      RawCreate(request);
      return true;
    case FUSE_WRITE:
      RawWrite(request);
      return true;
    case FUSE_IOCTL:
      RawIoctl(request);
      return true;
    case kFuseStatx:
      RawStatx(request);
      return true;
    case FUSE_SETATTR:
      RawSetAttr(request);
      return true;
    case FUSE_SETXATTR:
      RawSetXattr(request);
      return true;
    case FUSE_INTERRUPT:  // ENOSYS: the kernel sends no more of them
    case FUSE_FLUSH:      // ENOSYS: nothing waits for a close, so closing costs no crossing
      request.ReplyError(ENOSYS);
      return true;
    default:
      return false;
  }
}

void AddFileOps(fuse_lowlevel_ops* ops) {
  ops->read = Read;
  ops->release = Release;
  ops->fsync = Fsync;
  ops->fallocate = Fallocate;
  ops->lseek = Lseek;
  ops->copy_file_range = CopyFileRange;
}

}  // namespace salius
