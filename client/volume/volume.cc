#include "client/volume/volume.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/config.h"
#include "common/daemon.h"
#include "common/log.h"
#include "common/runbook.h"
#include "log/stable_log.h"
#include "log/state_file.h"
#include "storage/backing.h"
#include "storage/clean_volume.h"

namespace salius {
namespace {

// Descriptors that open files never get: for replicas, the control socket, and single calls.
constexpr uint64_t kOtherFds = 1024;

// How long a caller that needs room waits for removed files to be freed.
constexpr int64_t kReclaimTimeoutMs = 10000;

// Pages that are fetched at once. A hard disk orders up to 32 requests.
constexpr size_t kMostWorkers = 32;

// Returns how old a record may become in a lane: half of tau is left until no record may be issued,
// for the sync of a checkpoint.
int64_t MostWaitNs(const VolumeConfig& config) {
  const auto tau_ns = static_cast<int64_t>(config.tau_ms) * 1'000'000;
  return config.k * tau_ns - tau_ns / 2;
}

}  // namespace

Volume::Volume(BackingDirs dirs, const VolumeOptions& options, bool names_early, FileId id_ceiling)
    : dirs_(std::move(dirs)),
      backing_(dirs_.backing()),
      health_(stream_, options.gate_page),
      file_fds_(backing_),
      table_(backing_, [this] { return stream_.issued(); }),
      fds_(backing_, file_fds_),
      space_(backing_, dirs_.root_fd(), [this] { return issuer_.AwaitIssued(); }),
      rule_(options.contract),
      memory_(options.patch_memory_bytes),
      predictions_(backing_, names_early),
      issuer_(backing_, table_, predictions_, stream_, space_, memory_, id_ceiling),
      bulk_(backing_, table_, stream_, issuer_, fds_, space_, health_, dirs_,
            options.contract.relaxed() ? 0 : options.config.bulk_limit_bytes),
      links_(backing_, table_, stream_, bulk_, health_, dirs_),
      pending_(backing_, table_, predictions_, options.pending_names),
      applier_(backing_, table_, predictions_, fds_, space_, health_, dirs_, bulk_, links_,
               pending_, memory_),
      fetch_(MakeFetchPolicy(options.fetch, backing_)),
      own_workers_(options.workers == nullptr ? MakeLaneWorkers(kMostWorkers) : nullptr),
      workers_(own_workers_ ? *own_workers_ : *options.workers),
      sink_(backing_, table_, fds_, applier_, *fetch_, workers_, memory_, MostWaitNs(options.config)),
      room_(backing_, space_, issuer_, dirs_.root_fd()),
      files_(backing_, stream_, issuer_, bulk_, room_, fds_, health_, rule_, memory_,
             sink_),
      open_files_(backing_, table_, file_fds_, fds_, files_, links_, health_),
      attrs_(backing_, predictions_, issuer_, files_, links_, space_, health_, dirs_),
      checks_(backing_, table_, pending_, health_),
      waits_(backing_, pending_, space_, names_early),
      names_(backing_, dirs_, table_, pending_, issuer_, bulk_, space_, health_, checks_,
             open_files_, attrs_, waits_) {
  space_.set_reclaim([this] { return Reclaim(); });
}

// The chores end first, because they use the stream. So do the workers. Then the stream ends, whose
// threads call the sink.
Volume::~Volume() {
  links_.EndChores();
  pending_.EndChores();
  workers_.Stop();
  stream_.End();
}

absl::Status Volume::Prepare(uint64_t descriptors, const VolumeOptions& options) {
  SALIUS_ASSIGN_OR_RETURN(BackingFd root,
                          backing_.OpenAt(dirs_.root_fd(), ".", O_PATH | O_DIRECTORY));
  SALIUS_RETURN_IF_ERROR(table_.MakeRoot(std::move(root)));
  // One part is for everything else. Nodes may have half of the rest and open files the other half:
  // an open file needs two descriptors when its last name goes.
  const size_t shared = (descriptors - std::min(kOtherFds, descriptors / 4)) / 2;
  table_.path_fds().Configure(dirs_.root_fd(), table_.root().dev(), shared);
  file_fds_.Configure(shared);
  open_files_.SetNoAtime(options.noatime, options.nodiratime);
  waits_.SetDirsync(options.dirsync);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Volume>> Volume::Open(VolumeDir dir, VolumeOptions options,
                                                     StartRecordStream start) {
  SALIUS_ASSIGN_OR_RETURN(const uint64_t descriptors, RaiseFdLimit());
  SALIUS_ASSIGN_OR_RETURN(StateFile state,
                          StateFile::Open(*dir.backing, dir.salius_fd, kStateFileName));
  if (state.state().open) {
    return absl::FailedPreconditionError("the volume was not closed: it must be recovered first");
  }
  SALIUS_RETURN_IF_ERROR(CheckVolume(state.state(), dir.config.volume));
  SALIUS_ASSIGN_OR_RETURN(StableLog stable,
                          OpenCleanLog(*dir.backing, dir.salius_fd, state.state()));
  if (stable.capacity() < dir.config.stable_log_bytes) {
    // Recovery could not pin what this session may acknowledge.
    return absl::InvalidArgumentError(absl::StrFormat(
        "volume.toml says stable_log = \"%s\", but %s was made for %s: put it (and "
        "log_max) back to what salius init was given; %s",
        BytesText(dir.config.stable_log_bytes), kStableLogFileName, BytesText(stable.capacity()),
        SeeRunbook("stable-log-too-small")));
  }
  auto opened = std::make_unique<VolumeDir>(std::move(dir));
  SALIUS_ASSIGN_OR_RETURN(BackingDirs dirs,
                          BackingDirs::Open(*opened->backing, {.root = opened->root_fd,
                                                               .salius = opened->salius_fd,
                                                               .file = opened->lock_fd,
                                                               .watch = opened->ext4.get()}));
  // It has logged its error.
  static_cast<void>(
      RestoreBallast(*opened->backing, opened->salius_fd, opened->config.ballast_bytes));
  StreamOptions session_options;
  session_options.session_name = opened->path;
  session_options.spin_ns = options.spin_ns;
  session_options.insecure = options.insecure;
  session_options.keys = options.keys;
  session_options.key_rotation_ns = options.key_rotation_ns;
  session_options.gate_page = options.gate_page;
  session_options.output_triggered = options.output_triggered;
  session_options.config = options.config;
  const FileId id_ceiling = state.state().file_id_limit;
  SALIUS_ASSIGN_OR_RETURN(
      std::unique_ptr<Volume> volume,
      OpenIn(std::move(dirs), id_ceiling, descriptors, options, [&](ApplySink& sink) {
        return start(*opened, std::move(state), std::move(stable), sink,
                     std::move(session_options));
      }));
  volume->dir_ = std::move(opened);
  return volume;
}

absl::StatusOr<std::unique_ptr<Volume>> Volume::OpenIn(BackingDirs dirs, FileId id_ceiling,
                                                       uint64_t descriptors,
                                                       const VolumeOptions& options,
                                                       StartStream start) {
  const bool early = options.names_early && dirs.KeepsNanoseconds();
  if (options.names_early && !early) {
    SLOG_WARN("names=wait is used: the backing file system keeps no nanoseconds of times");
  }
  std::unique_ptr<Volume> volume(new Volume(std::move(dirs), options, early, id_ceiling));
  SALIUS_RETURN_IF_ERROR(volume->Prepare(descriptors, options));
  // The session's first note says that all there is is on the disk; files may have been put into
  // the plain directory just before.
  SALIUS_RETURN_IF_ERROR(volume->dirs_.Sync());
  SALIUS_ASSIGN_OR_RETURN(std::unique_ptr<RecordStream> stream, start(volume->sink_));
  volume->stream_.Set(std::move(stream));
  volume->dirs_.OpenClock();
  return volume;
}

absl::Status Volume::Close() {
  SALIUS_RETURN_IF_ERROR(health_.Data());
  // Bulk data is in no record; put it on the disk before the note says "clean".
  SALIUS_RETURN_IF_ERROR(AsDataError(stream_->SyncNow()));
  SALIUS_RETURN_IF_ERROR(AsDataError(stream_->Checkpoint()));
  links_.DropCovered();
  return stream_->Stop();
}

absl::Status Volume::Reclaim() {
  SALIUS_RETURN_IF_ERROR(AsDataError(stream_->Checkpoint()));
  links_.DropCovered();
  // The thread that frees removed files holds their nodes until it comes to them.
  pending_.AwaitFreed(kReclaimTimeoutMs);
  table_.AwaitDeleted();
  return absl::OkStatus();
}

absl::StatusOr<struct statvfs> Volume::StatFs() {
  SALIUS_ASSIGN_OR_RETURN(struct statvfs st, backing_.StatVfs(dirs_.root_fd()));
  const uint64_t block = std::max<uint64_t>(st.f_frsize, 1);
  // Space of closed O_TMPFILEs counts as free: a checkpoint removes their links, or a caller that
  // needs the room has them removed.
  for (const PinnedNode& node : links_.ClosedFiles()) {
    const absl::StatusOr<struct stat> file = backing_.Stat(node->path_fd.get());
    if (!file.ok() || file->st_nlink > 1) continue;
    const uint64_t blocks = static_cast<uint64_t>(file->st_blocks) * 512 / block;
    st.f_bfree += blocks;
    st.f_bavail += blocks;
    ++st.f_ffree;
    ++st.f_favail;
  }
  const uint64_t pending = space_.unapplied() / block;
  st.f_bfree -= std::min<uint64_t>(pending, st.f_bfree);
  st.f_bavail -= std::min<uint64_t>(pending + space_.held_back() / block, st.f_bavail);
  return st;
}

}  // namespace salius
