#include "client/mount/mount_daemon.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/gate/memory.h"
#include "client/mount/address_checks.h"
#include "client/mount/drain_watchdog.h"
#include "client/mount/mount_options.h"
#include "client/mount/notices.h"
#include "client/mount/process_setup.h"
#include "client/mount/served_mount.h"
#include "client/mount/volume_lock.h"
#include "client/session/pipeline.h"
#include "client/status/placement.h"
#include "client/status/recovery_history.h"
#include "client/volume/volume.h"
#include "common/check.h"
#include "common/daemon.h"
#include "common/host.h"
#include "common/log.h"
#include "common/net.h"
#include "common/strings.h"
#include "recovery/recover_if_open.h"
#include "storage/fs_calls.h"
#include "storage/host_claim.h"
#include "storage/volume_rights.h"
#include "transport/credentials.h"

namespace salius {
namespace {

// A drain hangs if the disk completes nothing for this long; then a recovery is better. A drain
// that makes progress has kDrainMost, on which umount_helper.cc, the unit and the documents rely.
constexpr std::chrono::seconds kDrainIdle{60};
constexpr std::chrono::minutes kDrainMost{15};

// Returns the watchdog's options for the drain and the end of the volume.
DrainWatchdog::Options WatchdogFor(dev_t device) {
  return {.idle = kDrainIdle,
          .most = kDrainMost,
          .progress = [device] { return WrittenSoFar(device); },
          .give_up =
              [](const std::string& why) {
                SLOG_ERROR("{}: giving up; the volume stays open and must be recovered", why);
                FlushLog();
                ::_exit(kExitFailure);
              }};
}

absl::StatusOr<std::string> KeepRights(const MountOptions& options) {
  VolumeRights rights;
  rights.reads_callers = true;
  if (!options.metrics.empty()) {
    SALIUS_ASSIGN_OR_RETURN(const HostPort metrics, ParseHostPort(options.metrics, 0));
    rights.metrics_port = metrics.port;
  }
  return KeepRightsForVolume(rights);
}

std::string DefaultLog(const VolumeConfig& config) {
  return absl::StrCat(kLogDir, "/", config.volume.ToString(), ".log");
}

absl::Status RecoverBefore(VolumeDir& dir, RecoverMode mode, std::shared_ptr<Credentials> keys,
                           Notices* notices) {
  SALIUS_ASSIGN_OR_RETURN(
      const std::optional<RecoveryReport> report,
      RecoverIfOpen(dir, mode == RecoverMode::kRefuse ? "recover=refuse" : "", std::move(keys)));
  if (!report.has_value()) return absl::OkStatus();
  notices->push_back(absl::StrFormat(
      "recovered %s: epoch %u up to record %u, %u records replayed in %.1f s; %s has the report",
      dir.path, report->epoch, report->decided, report->records,
      static_cast<double>(report->elapsed_ms) / 1000, LogPlace()));
  return absl::OkStatus();
}

// One mount from its lock to its end. The phases are called in the order of their declaration.
// Members are destroyed in reverse order: the watchdog outlives the volume, the volume the mount.
class MountDaemon {
 public:
  // `signals` were blocked before any thread was made.
  MountDaemon(const MountCommand& command, Launcher& launcher, SignalWaiter& signals)
      : command_(command), launcher_(launcher), signals_(signals) {}

  // Takes the volume for this process: lock, claim, configuration, log. Recovers it if it is open.
  // The log gets `rights`, the capabilities of this process.
  absl::Status Acquire(const std::string& rights);
  // Opens the volume, which starts the session.
  absl::Status OpenVolume();
  // Mounts, serves until the end of the mount, and unmounts. After an error nothing is mounted.
  absl::Status ServeMount();
  // Drains and closes the volume, also after an error of ServeMount, which it then returns.
  absl::Status Drain(const absl::Status& served);

 private:
  // Reports to the launcher and the user that the mount answers.
  absl::Status Announce();
  // Waits for a signal or the end of the connection. Returns whether it was the latter.
  bool AwaitEnd();

  const MountCommand& command_;
  Launcher& launcher_;
  SignalWaiter& signals_;
  PrimaryHost host_;
  Notices notices_;
  std::optional<VolumeDir> dir_;  // until OpenVolume
  VolumeConfig config_;           // after the options were applied
  std::shared_ptr<Credentials> keys_;
  dev_t device_ = 0;              // of the backing directory
  std::unique_ptr<RecoveryHistory> history_;
  // Runs from the begin of the drain. After an early failure a thread may still hang on the disk,
  // and the volume's end waits for it.
  std::optional<DrainWatchdog> watchdog_;
  std::unique_ptr<gate::Memory> gate_;  // commit=external; else null
  std::unique_ptr<Volume> volume_;
  std::unique_ptr<ServedMount> mount_;
  bool cut_off_ = false;  // the kernel ended the connection without an unmount
};

absl::Status MountDaemon::Acquire(const std::string& rights) {
  KeepMemoryPrivate();
  SALIUS_ASSIGN_OR_RETURN(dir_, LockVolume(command_.backing));
  SALIUS_RETURN_IF_ERROR(ClaimOnThisHost(*dir_));
  const MountOptions& options = command_.options;
  SALIUS_RETURN_IF_ERROR(OverrideConfig(options, &dir_->config));
  config_ = dir_->config;
  SALIUS_RETURN_IF_ERROR(
      CheckReplicas(config_.replicas, options.insecure || !config_.keys.empty()));
  SALIUS_RETURN_IF_ERROR(CheckMetrics(options.metrics, options.insecure));
  SALIUS_ASSIGN_OR_RETURN(keys_, Credentials::Load(config_.keys));
  // From here on the terminal gets only notices, and the log gets the rest, also of a recovery.
  SALIUS_RETURN_IF_ERROR(launcher_.TakeLog(options.log_file, DefaultLog(config_)));
  SALIUS_RETURN_IF_ERROR(InitLogging("salius-mount", options.log_level));
  if (!rights.empty()) SLOG_INFO("{}", rights);
  if (options.contract.commit == Commit::kExternal && !absl::StrContains(rights, "CAP_SYS_PTRACE")) {
    SLOG_WARN(
        "this process has no CAP_SYS_PTRACE: it may be unable to check the programs that use "
        "commit=external, and then refuses them (systemd: CapabilityBoundingSet=CAP_SYS_PTRACE)");
  }
  RaiseDescriptorLimit();
  return RecoverBefore(*dir_, options.recover, keys_, &notices_);
}

absl::Status MountDaemon::OpenVolume() {
  KeepFreedMemory();
  if (command_.options.contract.commit == Commit::kExternal) {
    SALIUS_ASSIGN_OR_RETURN(gate_, gate::Memory::Make());
  }
  SALIUS_ASSIGN_OR_RETURN(history_,
                          RecoveryHistory::Load(*dir_->backing, dir_->salius_fd, dir_->path));
  SALIUS_ASSIGN_OR_RETURN(const struct stat backing, fs::StatAt(dir_->root_fd, ""));
  device_ = backing.st_dev;
  const MountOptions& options = command_.options;
  VolumeDir dir = *std::move(dir_);
  dir_.reset();
  SALIUS_ASSIGN_OR_RETURN(volume_, Volume::Open(std::move(dir),
                                                {.config = config_,
                                                 .gate_page = gate_ ? &gate_->page() : nullptr,
                                                 .output_triggered = options.output_triggered,
                                                 .spin_ns = SpinNanos(options, AvailableCpus()),
                                                 .insecure = options.insecure,
                                                 .keys = keys_,
                                                 .key_rotation_ns = static_cast<int64_t>(
                                                     options.key_rotation_s * 1'000'000'000),
                                                 .noatime = LeavesAtime(options),
                                                 .nodiratime = LeavesDirAtime(options),
                                                 .names_early = config_.names == NameMode::kAsync,
                                                 .dirsync = SyncsNames(options),
                                                 .fetch = options.fetch,
                                                 .patch_memory_bytes = options.patch_memory_bytes,
                                                 .contract = options.contract},
                                                StartPipeline));
  return absl::OkStatus();
}

absl::Status MountDaemon::ServeMount() {
  host_ = ThisHost();
  SALIUS_ASSIGN_OR_RETURN(mount_, ServedMount::Start({.command = command_,
                                                      .config = config_,
                                                      .volume = *volume_,
                                                      .gate = gate_.get(),
                                                      .history = *history_,
                                                      .host = host_},
                                                     [this] { signals_.Wake(); }));
  absl::Status status = mount_->Probe();
  if (status.ok()) status = Announce();
  const bool has_ended = status.ok() && AwaitEnd();
  mount_->SetDraining();
  watchdog_.emplace(WatchdogFor(device_));
  cut_off_ = mount_->End(has_ended);
  return status;
}

absl::Status MountDaemon::Announce() {
  AwaitFirstMode(volume_->stream(), !config_.replicas.empty(), &notices_);
  WarnOfSharedHosts(config_, volume_->stream(), host_, &notices_);
  WarnOfLosses(*history_, command_.backing, &notices_);
  // In the foreground the log has them.
  SALIUS_RETURN_IF_ERROR(launcher_.Ready(command_.foreground ? "" : absl::StrJoin(notices_, "\n"),
                                         command_.options.log_file, DefaultLog(config_)));
  // The pipeline logs with its lock held, and its timers must continue: only the log's own thread
  // may wait for the log's reader.
  LogInBackground();
  SLOG_INFO("{} is mounted at {}", command_.backing, command_.mountpoint);
  NotifyReady();
  return absl::OkStatus();
}

bool MountDaemon::AwaitEnd() {
  int signal = signals_.Wait();
  // SIGHUP means nothing here: no terminal, no file to read again.
  while (signal == SIGHUP) signal = signals_.Wait();
  if (signal != 0) SLOG_INFO("signal {}: unmounting and draining", signal);
  NotifyStopping();
  return signal == 0;
}

absl::Status MountDaemon::Drain(const absl::Status& served) {
  const absl::Status drained = served.ok() ? volume_->Close() : served;
  mount_.reset();
  if (!drained.ok()) {
    // A mount that never served has nothing to drain, and is closed all the same; after a failed
    // Close this only repeats the error.
    const absl::Status closed = volume_->Close();
    if (!closed.ok()) SLOG_ERROR("the volume stays open: {}", closed.ToString());
    return drained;
  }
  SLOG_INFO("{} is clean", command_.backing);
  return cut_off_ ? CutOffError(command_) : absl::OkStatus();
}

}  // namespace

absl::Status Serve(const MountCommand& command, Launcher& launcher) {
  SignalWaiter signals;
  SALIUS_RETURN_IF_ERROR(PrepareProcess());
  // Before any thread: threads inherit what is left.
  SALIUS_ASSIGN_OR_RETURN(const std::string rights, KeepRights(command.options));
  MountDaemon daemon(command, launcher, signals);
  SALIUS_RETURN_IF_ERROR(daemon.Acquire(rights));
  SALIUS_RETURN_IF_ERROR(daemon.OpenVolume());
  const absl::Status served = daemon.ServeMount();
  return daemon.Drain(served);
}

}  // namespace salius
