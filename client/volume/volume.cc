#include "client/volume/volume.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "client/volume/volume_impl.h"
#include "common/check.h"
#include "common/daemon.h"
#include "common/file_system.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/strings.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "storage/backing.h"
#include "storage/block_calls.h"
#include "storage/clean_volume.h"
#include "storage/fs_calls.h"

namespace salius {
namespace {

// Descriptors that open files never get: for replicas, the control socket, and single calls.
constexpr uint64_t kOtherFds = 1024;

}  // namespace

absl::Status AsNameError(const absl::Status& status) {
  return status.ok() ? status : ErrnoStatus(EROFS, Sv(status.message()));
}

absl::Status AsDataError(const absl::Status& status) {
  return status.ok() ? status : ErrnoStatus(EIO, Sv(status.message()));
}

Volume::Impl::Impl(VolumeDir volume_dir, VolumeOptions volume_options)
    : dir(std::move(volume_dir)),
      options(std::move(volume_options)),
      bulk_bytes(GetCounter("salius_bulk_bytes_total", "Bytes written past the log to bulk files")),
      bulk_entered(GetCounter("salius_bulk_transitions_total", "Files that became bulk or stopped",
                              {{"to", "bulk"}})),
      bulk_synced(GetCounter("salius_bulk_transitions_total", "Files that became bulk or stopped",
                             {{"to", "logged"}})),
      adopted(
          GetCounter("salius_adopted_files_total", "Files that were there before and got an id")),
      cancelled(GetCounter("salius_cancelled_records_total",
                           "Operations that failed when they were applied")) {}

// The chores end first, because they use the stream. Then the stream ends, whose threads call
// Apply.
Volume::Impl::~Impl() {
  chores.reset();
  stream.reset();
  table.SetIssued(nullptr);
}

absl::Status Volume::Impl::Prepare(uint64_t descriptors) {
  SALIUS_ASSIGN_OR_RETURN(sync_fd, OpenAt(dir.root_fd, ".", O_RDONLY | O_DIRECTORY));
  SALIUS_ASSIGN_OR_RETURN(tmp_dir, OpenAt(dir.salius_fd, kTmpDirName, O_RDONLY | O_DIRECTORY));
  SALIUS_ASSIGN_OR_RETURN(open_dir, OpenAt(dir.salius_fd, kOpenDirName, O_RDONLY | O_DIRECTORY));
  // The volume is clean: nothing needs what an earlier session was making or held open.
  for (const UniqueFd* leftovers : {&tmp_dir, &open_dir}) {
    SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs::ListDir(leftovers->get()));
    for (const std::string& name : names) RemoveLeftover(leftovers->get(), name);
  }
  SALIUS_ASSIGN_OR_RETURN(UniqueFd root_fd, OpenAt(dir.root_fd, ".", O_PATH | O_DIRECTORY));
  SALIUS_ASSIGN_OR_RETURN(root, table.Intern(std::move(root_fd), [] { return Seq{0}; }));
  SALIUS_CHECK(table.SetId(*root, kRootFileId));
  root->identified.store(true);
  root->path_fd.Keep(root->path_fd.get());
  // One part is for everything else. Nodes may have half of the rest and open files the other half:
  // an open file needs two descriptors when its last name goes.
  const size_t shared = (descriptors - std::min(kOtherFds, descriptors / 4)) / 2;
  table.path_fds().Configure(dir.root_fd, root->dev, shared);
  table.SetIssued([this] {
    const RecordStream* const session = pipe.load();
    return session != nullptr ? session->watermarks().issued : Seq{0};
  });
  file_fds.Configure(shared);
  file_fds.SetNoAtime(options.noatime, options.noatime || options.nodiratime);
  space = std::make_unique<SpaceGuard>(
      LinuxBacking(), dir.root_fd,
      [this] { return AsDataError(AwaitApplied(pipe.load()->watermarks().issued)); });
  shared_block_bytes = fs::SharedBlockBytes(dir.root_fd);
  space->set_reclaim([this] {
    SALIUS_RETURN_IF_ERROR(AsDataError(pipe.load()->Checkpoint()));
    DropCoveredLinks();
    table.AwaitDeleted();
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Volume>> Volume::Open(VolumeDir dir, VolumeOptions options,
                                                     StartRecordStream start) {
  SALIUS_ASSIGN_OR_RETURN(const uint64_t descriptors, RaiseFdLimit());
  SALIUS_ASSIGN_OR_RETURN(StateFile state, StateFile::Open(dir.salius_fd, kStateFileName));
  if (state.state().open) {
    return absl::FailedPreconditionError("the volume was not closed: it must be recovered first");
  }
  SALIUS_RETURN_IF_ERROR(CheckVolume(state.state(), dir.config.volume));
  SALIUS_ASSIGN_OR_RETURN(StableLog stable, OpenCleanLog(dir.salius_fd, state.state()));
  if (stable.capacity() < dir.config.stable_log_bytes) {
    // Recovery could not pin what this session may acknowledge.
    return absl::InvalidArgumentError(
        absl::StrFormat("volume.toml says stable_log_bytes = %d, but %s was made for %d: put it "
                        "(and log_max_bytes) back "
                        "to what salius init was given",
                        dir.config.stable_log_bytes, kStableLogFileName, stable.capacity()));
  }
  auto impl = std::make_unique<Impl>(std::move(dir), std::move(options));
  SALIUS_RETURN_IF_ERROR(impl->Prepare(descriptors));
  impl->id_ceiling.store(state.state().file_id_limit);
  // It has logged its error.
  static_cast<void>(RestoreBallast(impl->dir.salius_fd, impl->dir.config.ballast_bytes));
  // The session's first note says that all there is is on the disk; files may have been put into
  // the plain directory just before.
  SALIUS_RETURN_IF_ERROR(impl->SyncBacking());
  StreamOptions session_options;
  session_options.config = impl->options.config;
  session_options.session_name = impl->dir.path;
  session_options.spin_ns = impl->options.spin_ns;
  session_options.insecure = impl->options.insecure;
  SALIUS_ASSIGN_OR_RETURN(impl->stream,
                          start(impl->dir, std::move(state), std::move(stable), *impl,
                                std::move(session_options)));
  impl->pipe.store(impl->stream.get());
  // This comes last, because there may be no inode left; then the kernel's clock is used.
  absl::StatusOr<UniqueFd> clock = OpenAt(impl->tmp_dir.get(), ".", O_TMPFILE | O_RDWR, 0600);
  if (clock.ok()) impl->clock_file = *std::move(clock);
  return std::unique_ptr<Volume>(new Volume(std::move(impl)));
}

absl::Status Volume::Impl::Close() {
  SALIUS_RETURN_IF_ERROR(DataHealth());
  // Bulk data is in no record; put it on the disk before the note says "clean".
  SALIUS_RETURN_IF_ERROR(AsDataError(stream->SyncNow()));
  SALIUS_RETURN_IF_ERROR(AsDataError(stream->Checkpoint()));
  DropCoveredLinks();
  return stream->Stop();
}

absl::Status Volume::Impl::DataHealth() const {
  SALIUS_RETURN_IF_ERROR(AsDataError(pipe.load()->health()));
  if (!failed.load()) return absl::OkStatus();
  absl::MutexLock lock(&failure_mu);
  return AsDataError(failure);
}

absl::Status Volume::Impl::NameHealth() const { return AsNameError(DataHealth()); }

void Volume::Impl::Fail(const absl::Status& why) {
  absl::MutexLock lock(&failure_mu);
  if (!failure.ok()) return;
  failure = why;
  failed.store(true);
  SLOG_ERROR("the volume is read-only from now on: {}", why.ToString());
}

void Volume::Impl::RemoveLeftover(int dirfd, const std::string& name) {
  absl::Status removed = fs::Unlink(dirfd, name, 0);
  if (StatusErrno(removed) == EISDIR) removed = fs::Unlink(dirfd, name, AT_REMOVEDIR);
  // A directory with something in it may hold someone's data.
  if (!removed.ok() && StatusErrno(removed) != ENOENT) {
    SLOG_WARN("left in .salius: {}", removed.ToString());
  }
}

bool Volume::Impl::IsHidden(const Node& node, std::string_view name) const {
  return &node == root.get() && name == kSaliusDir;
}

absl::StatusOr<Entry> Volume::Impl::Lookup(Node& node, std::string_view name) {
  if (!node.is_dir()) return ErrnoStatus(ENOTDIR, "lookup");
  if (name.size() > kMaxNameBytes) return ErrnoStatus(ENAMETOOLONG, "lookup");
  if (name.empty() || name == "." || name == ".." || IsHidden(node, name)) {
    return ErrnoStatus(ENOENT, "lookup");
  }
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, fs::OpenChild(node.path_fd.get(), std::string(name)));
  SALIUS_ASSIGN_OR_RETURN(PinnedNode child, Intern(std::move(fd)));
  Entry entry;
  SALIUS_ASSIGN_OR_RETURN(entry.attr, GetAttr(*child, &entry.provisional));
  entry.node = child.Release();
  return entry;
}

absl::StatusOr<PinnedNode> Volume::Impl::Intern(UniqueFd fd) {
  return table.Intern(std::move(fd), [this] { return pipe.load()->watermarks().issued; });
}

absl::StatusOr<struct statvfs> Volume::Impl::StatFs() {
  SALIUS_ASSIGN_OR_RETURN(struct statvfs st, fs::StatVfs(dir.root_fd));
  const uint64_t block = std::max<uint64_t>(st.f_frsize, 1);
  // Space of closed O_TMPFILEs counts as free: a checkpoint removes their links, or a caller that
  // needs the room has them removed.
  for (const PinnedNode& node : ClosedNamelessFiles()) {
    const absl::StatusOr<struct stat> file = fs::Stat(node->path_fd.get());
    if (!file.ok() || file->st_nlink > 1) continue;
    const uint64_t blocks = static_cast<uint64_t>(file->st_blocks) * 512 / block;
    st.f_bfree += blocks;
    st.f_bavail += blocks;
    ++st.f_ffree;
    ++st.f_favail;
  }
  const uint64_t pending = space->unapplied() / block;
  st.f_bfree -= std::min<uint64_t>(pending, st.f_bfree);
  st.f_bavail -= std::min<uint64_t>(pending + space->held_back() / block, st.f_bavail);
  return st;
}

// ---- Volume's public methods

Volume::Volume(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Volume::~Volume() = default;

Node* Volume::root() { return impl_->root.get(); }
void Volume::SetNoAtime(bool noatime, bool nodiratime) {
  impl_->file_fds.SetNoAtime(noatime, noatime || nodiratime);
}
bool Volume::ManyWait() const { return impl_->pipe.load()->ManyWait(); }
ino_t Volume::InoOf(const Node& node) { return node.ino; }
uint64_t Volume::Generation(const Node& node) { return node.generation; }
std::atomic<uint64_t>& Volume::FrontWord(Node& node) { return node.front_word; }
RecordStream& Volume::stream() { return *impl_->stream; }
absl::Status Volume::health() const { return impl_->DataHealth(); }
absl::Status Volume::Close() { return impl_->Close(); }
absl::StatusOr<struct statvfs> Volume::StatFs() { return impl_->StatFs(); }

absl::StatusOr<Entry> Volume::Lookup(Node& dir, std::string_view name) {
  return impl_->Lookup(dir, name);
}

void Volume::Forget(Node& node, uint64_t lookups) {
  // The root stays: it was never looked up.
  if (&node != impl_->root.get() && lookups > 0) impl_->table.Unpin(node, lookups);
}

absl::StatusOr<Entry> Volume::MakeNode(Node& dir, std::string_view name, mode_t mode, dev_t rdev,
                                       const Caller& caller) {
  if ((mode & S_IFMT) == 0) mode |= S_IFREG;
  if (S_ISDIR(mode) || S_ISLNK(mode)) return ErrnoStatus(EINVAL, "mknod");
  CreateBody body;
  body.mode = mode;
  body.rdev = rdev;
  return impl_->Create(dir, name, std::move(body), caller);
}

absl::StatusOr<Entry> Volume::MakeDir(Node& dir, std::string_view name, mode_t mode,
                                      const Caller& caller) {
  CreateBody body;
  body.mode = (mode & 07777) | S_IFDIR;
  return impl_->Create(dir, name, std::move(body), caller);
}

absl::StatusOr<Entry> Volume::Symlink(Node& dir, std::string_view name, std::string_view target,
                                      const Caller& caller) {
  if (target.empty()) return ErrnoStatus(ENOENT, "symlink");
  if (target.size() > kMaxSymlinkBytes) return ErrnoStatus(ENAMETOOLONG, "symlink");
  CreateBody body;
  body.mode = S_IFLNK | 0777;
  body.symlink_target = std::string(target);
  return impl_->Create(dir, name, std::move(body), caller);
}

absl::StatusOr<Entry> Volume::Link(Node& node, Node& dir, std::string_view name) {
  return impl_->Link(node, dir, name);
}
absl::Status Volume::Unlink(Node& dir, std::string_view name) { return impl_->Unlink(dir, name); }
absl::Status Volume::RemoveDir(Node& dir, std::string_view name) {
  return impl_->RemoveDir(dir, name);
}
absl::Status Volume::Rename(Node& from_dir, std::string_view from, Node& to_dir,
                            std::string_view to, uint32_t flags,
                            const Caller& caller) {
  return impl_->Rename(from_dir, from, to_dir, to, flags, caller);
}

absl::StatusOr<std::string> Volume::ReadLink(Node& node) {
  if (!S_ISLNK(node.type)) return ErrnoStatus(EINVAL, "readlink");
  return fs::ReadLinkOf(node.path_fd.get());
}

absl::StatusOr<struct stat> Volume::GetAttr(Node& node, bool* provisional) {
  return impl_->GetAttr(node, provisional);
}
absl::StatusOr<std::optional<timespec>> Volume::BirthTime(Node& node) {
  return fs::BirthTimeOf(node.path_fd.get());
}
absl::StatusOr<struct stat> Volume::SetAttr(Node& node, uint32_t mask, const struct stat& want,
                                            bool* provisional) {
  return impl_->SetAttr(node, mask, want, provisional);
}
absl::Status Volume::CheckNewGroup(Node& node, gid_t gid) {
  return impl_->CheckNewGroup(node, gid);
}
absl::StatusOr<std::string> Volume::GetXattr(Node& node, const std::string& name) {
  return impl_->GetXattr(node, name);
}
absl::StatusOr<std::vector<std::string>> Volume::ListXattr(Node& node) {
  return impl_->ListXattr(node);
}
absl::Status Volume::SetXattr(Node& node, const std::string& name, std::string_view value,
                              int flags, bool kill_sgid) {
  return impl_->SetXattr(node, name, value, flags, kill_sgid);
}
absl::Status Volume::RemoveXattr(Node& node, const std::string& name) {
  return impl_->RemoveXattr(node, name);
}

bool Volume::ManyOpen() const { return impl_->file_fds.Crowded(); }
absl::StatusOr<Handle*> Volume::OpenFile(Node& node, int flags, uid_t opener) {
  return impl_->OpenFile(node, flags, opener);
}
absl::StatusOr<Volume::Created> Volume::CreateFile(Node& dir, std::string_view name, int flags,
                                                   mode_t mode, const Caller& caller) {
  return impl_->CreateFile(dir, name, flags, mode, caller);
}
absl::StatusOr<Volume::Created> Volume::CreateTmpFile(Node& dir, int flags, mode_t mode,
                                                      const Caller& caller) {
  return impl_->CreateTmpFile(dir, flags, mode, caller);
}

bool Volume::DirectAllowed(Node& node) const {
  absl::MutexLock lock(&node.state);
  return node.direct_handles == node.handles;
}

void Volume::Release(Handle* handle) { impl_->Release(handle); }

absl::Status Volume::Read(Handle& handle, uint64_t offset, size_t size, std::string* out) {
  return impl_->Read(handle, offset, size, out);
}
absl::StatusOr<size_t> Volume::Write(Handle& handle, uint64_t offset, std::string_view data,
                                     bool append, Contract contract) {
  return impl_->Write(handle, offset, data, append, contract);
}
absl::StatusOr<Ticket> Volume::StartWrite(Handle& handle, uint64_t offset, std::string_view data,
                                          bool append, Contract contract) {
  return impl_->StartWrite(handle, offset, data, append, contract);
}
absl::StatusOr<Ticket> Volume::StartFsync(Handle& handle) { return impl_->StartFsync(handle.node); }
absl::Status Volume::Await(const Ticket& ticket) { return impl_->Await(ticket); }
void Volume::WhenDurable(const Ticket& ticket, DurableCallback done) {
  impl_->pipe.load()->WhenDurable(ticket.durable_first,
                                  [done = std::move(done)](const absl::Status& status) mutable {
                                    std::move(done)(AsDataError(status));
                                  });
}
absl::Status Volume::Fallocate(Handle& handle, int mode, uint64_t offset, uint64_t length) {
  return impl_->Fallocate(handle, mode, offset, length);
}
absl::StatusOr<uint64_t> Volume::Lseek(Handle& handle, uint64_t offset, int whence) {
  return impl_->Lseek(handle, offset, whence);
}
absl::StatusOr<size_t> Volume::CopyFileRange(Handle& in, uint64_t in_offset, Handle& out,
                                             uint64_t out_offset, size_t length) {
  return impl_->CopyFileRange(in, in_offset, out, out_offset, length);
}

}  // namespace salius
