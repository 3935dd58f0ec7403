#include "client/mount/mount_daemon.h"

#include <malloc.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/fuse/connection.h"
#include "client/fuse/front.h"
#include "client/fuse/mount_calls.h"
#include "client/fuse/mount_table.h"
#include "client/mount/drain_watchdog.h"
#include "client/mount/umount_note.h"
#include "client/mount/volume_metrics.h"
#include "client/session/pipeline.h"
#include "client/status/placement.h"
#include "client/status/recovery_history.h"
#include "client/status/socket_path.h"
#include "client/status/status_reader.h"
#include "client/status/status_server.h"
#include "client/volume/volume.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/file.h"
#include "common/host.h"
#include "common/log.h"
#include "common/net.h"
#include "common/strings.h"
#include "log/state_file.h"
#include "recovery/recovery.h"
#include "storage/fs_calls.h"
#include "storage/host_claim.h"

namespace salius {
namespace {

// A predecessor that was unmounted a moment ago may still drain.
constexpr std::chrono::seconds kPredecessorBound{60};
// A drain hangs if the disk completes nothing for this long; then a recovery is better. A drain
// that makes progress has kDrainMost, on which umount_helper.cc, the unit and the documents rely.
constexpr std::chrono::seconds kDrainIdle{60};
constexpr std::chrono::minutes kDrainMost{15};
// How long a mount waits for its replicas before it says that it began without them.
constexpr std::chrono::seconds kFirstHealBound{2};
constexpr std::chrono::milliseconds kPollInterval{10};
constexpr std::chrono::milliseconds kLockInterval{50};
// The time within which a mounted volume must answer.
constexpr std::chrono::seconds kAnswerBound{2};
using SteadyClock = std::chrono::steady_clock;

// Returns the watchdog's options for the drain and the end of the volume.
DrainWatchdog::Options WatchOver(dev_t device) {
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

// Raises the limit of descriptors: an open file holds one, and a name in the kernel's cache another
// while there are enough.
void RaiseLimits() {
  const absl::StatusOr<std::string> most = ReadWholeFile("/proc/sys/fs/nr_open");
  uint64_t files = 0;
  if (most.ok() && absl::SimpleAtoi(*most, &files)) {
    const rlimit wanted{files, files};
    if (::setrlimit(RLIMIT_NOFILE, &wanted) == 0) return;
  }
  const absl::StatusOr<uint64_t> limit = RaiseFdLimit();
  if (limit.ok()) SLOG_INFO("{} descriptors: nearly half of them are for open files", *limit);
}

absl::Status PrepareProcess() {
  SALIUS_RETURN_IF_ERROR(LiftFileSizeLimit());
  ::umask(0);  // callers choose the modes
  // Memory reclaim must not wait for this file system, whose daemon may wait for memory.
  if (::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0) {
    SLOG_DEBUG("PR_SET_IO_FLUSHER: not available");
  }
  // Each of malloc's arenas keeps the memory that its fullest log took, and by default there are
  // eight for each CPU.
  static_cast<void>(::mallopt(M_ARENA_MAX, static_cast<int>(AvailableCpus())));
  return absl::OkStatus();
}

// Makes malloc keep freed memory. A checkpoint frees its records at once, and as many come again:
// if the memory went back to the system in between, every page would cost a fault.
void KeepFreedMemory() {
  constexpr int kTrimBytes = 128 << 20;
  constexpr int kMapBytes = 4 << 20;  // larger than any record
  // A refused setting stays unchanged.
  static_cast<void>(::mallopt(M_TRIM_THRESHOLD, kTrimBytes));
  static_cast<void>(::mallopt(M_MMAP_THRESHOLD, kMapBytes));
}

// Returns whether the holder of the volume's lock serves the volume, and so keeps the lock.
//
//   the holder                            | serves
//   --------------------------------------+-------------------------------------------------------
//   answers                               | as it says; a drain is no
//   has no socket that listens            | no: it begins, ends, or recovers
//   listens and does not answer           | yes, if it is mounted; no, if `awaited`
//
// `awaited`: the holder was found not to serve before. Then it drains, may be slow, and its dead
// mount may exist.
bool HolderServes(const std::string& backing, bool awaited) {
  const absl::StatusOr<VolumeDir> dir = VolumeDir::Open(backing, /*lock=*/false);
  if (!dir.ok()) return false;
  const auto status = ReadVolumeStatus(SocketPathOf(dir->config.volume), kAnswerBound);
  if (status.ok()) return status->serving();
  return !awaited && !absl::IsUnavailable(status.status()) && IsMountedAnywhere(backing);
}

absl::StatusOr<VolumeDir> LockVolume(const std::string& backing) {
  const SteadyClock::time_point bound = SteadyClock::now() + kPredecessorBound;
  for (bool said = false;; said = true) {
    absl::StatusOr<VolumeDir> dir = VolumeDir::Open(backing, /*lock=*/true);
    if (!absl::IsUnavailable(dir.status()) || SteadyClock::now() > bound ||
        HolderServes(backing, said)) {
      return dir;
    }
    if (!said) SLOG_INFO("waiting: {}", Sv(dir.status().message()));
    std::this_thread::sleep_for(kLockInterval);
  }
}

// Messages for the user who mounts, a sentence each. They go to the log too.
using Notices = std::vector<std::string>;

absl::Status RecoverIfOpen(VolumeDir& dir, RecoverMode mode, Notices* notices) {
  {
    SALIUS_ASSIGN_OR_RETURN(const StateFile state, StateFile::Open(dir.salius_fd, kStateFileName));
    if (!state.state().open) return absl::OkStatus();
  }
  if (mode == RecoverMode::kRefuse) {
    return absl::FailedPreconditionError(
        absl::StrCat(dir.path,
                     " was not unmounted cleanly and recover=refuse was given; run "
                     "\"salius-recover ",
                     ShellQuote(dir.path), "\" first"));
  }
  SLOG_INFO("{} was not unmounted cleanly: recovering", dir.path);
  const absl::StatusOr<RecoveryReport> report = Recover(dir, RecoveryOptions{});
  if (!report.ok()) {
    return absl::Status(
        // An error of the file system that means "invalid" is no wrong option.
        absl::IsInvalidArgument(report.status()) || absl::IsUnimplemented(report.status())
            ? absl::StatusCode::kFailedPrecondition
            : report.status().code(),
        absl::StrCat("recovery of ", dir.path, " failed: ",
                     Printable(std::string(report.status().message()), NewLines::kReplace),
                     "; see salius-recover(8)"));
  }
  SLOG_INFO("recovered:\n{}", RecoveryReportText(*report));
  notices->push_back(absl::StrFormat(
      "recovered %s: epoch %u up to record %u, %u records replayed in %.1f s; %s has the report",
      dir.path, report->epoch, report->decided, report->records,
      static_cast<double>(report->elapsed_ms) / 1000, LogPlace()));
  return absl::OkStatus();
}

// Waits a little for the first healing.
void AwaitFirstMode(RecordStream& stream, bool has_replicas, Notices* notices) {
  if (!has_replicas) return;
  const SteadyClock::time_point bound = SteadyClock::now() + kFirstHealBound;
  SessionStatus status = stream.status();
  while (status.mode != ModeName(Mode::kReplicated) && SteadyClock::now() < bound) {
    std::this_thread::sleep_for(kPollInterval);
    status = stream.status();
  }
  if (status.mode == ModeName(Mode::kReplicated)) return;
  std::string notice = absl::StrCat("mounted, but in mode ", status.mode,
                                    ": synchronous writes wait for the local disk");
  for (const ReplicaReport& replica : status.replicas) {
    if (!replica.connected) {
      // Some reasons begin with the replica's name.
      const std::string name = absl::StrCat("replica ", replica.address, ": ");
      absl::StrAppend(&notice, "; ", name,
                      replica.problem.empty()
                          ? "does not answer"
                          : absl::StrReplaceAll(replica.problem, {{name, ""}}));
    }
  }
  SLOG_WARN("{}", notice);
  notices->push_back(std::move(notice));
}

// Warns of replicas that fail with this host or with each other, as far as is known by now.
void WarnOfSharedHosts(const VolumeConfig& config, const RecordStream& stream,
                       const PrimaryHost& host, Notices* notices) {
  if (config.allow_same_host) return;
  for (const std::string& warning : SharedHostWarnings(PlacedOf(stream.status()), host)) {
    const std::string notice = absl::StrCat(warning, "; ", kSharedHostAdvice);
    SLOG_WARN("{}", notice);
    notices->push_back(notice);
  }
}

// Warns of records that forced recoveries gave up and that no operator has acknowledged.
void WarnOfLosses(const RecoveryHistory& history, const std::string& backing, Notices* notices) {
  history.LogUnacknowledged();
  const size_t count = history.notes().Unacknowledged().size();
  if (count == 0) return;
  notices->push_back(absl::StrFormat(
      "%d forced recoveries of this volume gave records up: see \"salius status %s\", and then run "
      "\"salius acknowledge %s\"",
      count, ShellQuote(backing), ShellQuote(backing)));
}

uint64_t UnixMillis() {
  return static_cast<uint64_t>(std::max<int64_t>(SystemClock().RealtimeNanos(), 0)) / 1'000'000;
}

std::string DefaultLog(const VolumeConfig& config) {
  return absl::StrCat(kLogDir, "/", config.volume.ToString(), ".log");
}

int Threads(const MountOptions& options) {
  return options.threads > 0 ? options.threads : DefaultThreads(AvailableCpus());
}

// Returns the time to poll before a sleep. With one CPU it is 0: a polling worker would keep the
// program from running.
int64_t SpinNanos(const MountOptions& options) {
  return AvailableCpus() > 1 ? static_cast<int64_t>(options.spin_us) * 1000 : 0;
}

// Returns the kernel's time-outs for the log; "" when there are none.
std::string RequestTimeouts() {
  std::string text;
  for (const char* const name : {"default_request_timeout", "max_request_timeout"}) {
    const absl::StatusOr<std::string> value =
        ReadWholeFile(absl::StrCat("/proc/sys/fs/fuse/", name));
    uint64_t seconds = 0;
    if (!value.ok() || !absl::SimpleAtoi(*value, &seconds) || seconds == 0) continue;
    absl::StrAppend(&text, text.empty() ? " (" : ", ", "fs.fuse.", name, " = ", seconds, " s");
  }
  return text.empty() ? text : text + ")";
}

// Returns the error for a connection that ended without an unmount.
absl::Status CutOffError(const MountCommand& command) {
  return absl::UnavailableError(absl::StrCat(
      "the kernel ended the connection of ", command.mountpoint,
      ", which nobody unmounted: by a request time-out", RequestTimeouts(),
      ", by abort in /sys/fs/fuse/connections, or by umount -f of a busy mount. Programs get "
      "ENOTCONN there until ",
      command.backing, " is mounted again"));
}

// Returns whether a connection that ended was not unmounted. Logs which.
bool WasCutOff(const MountCommand& command, Connection& connection) {
  const bool cut_off = connection.CutOff();
  if (cut_off) {
    SLOG_ERROR("{}; draining", Sv(CutOffError(command).message()));
  } else {
    SLOG_INFO("unmounted: draining");
  }
  return cut_off;
}

// These return the volume's part of a mount's flags: the times of access.
bool LeavesAtime(const MountOptions& options) {
  return (options.mount_flags & (MS_NOATIME | MS_RDONLY)) != 0;
}
bool LeavesDirAtime(const MountOptions& options) {
  return (options.mount_flags & MS_NODIRATIME) != 0;
}

// Does the work of StatusServerOptions::remount.
absl::Status Remount(const MountOptions& now, const VolumeConfig& config, Volume& volume,
                     const std::string& options, bool check_only) {
  SALIUS_ASSIGN_OR_RETURN(const MountOptions wanted, ParseMountOptions({options}));
  SALIUS_RETURN_IF_ERROR(CheckRemount(now, config, wanted));
  const std::string failure = volume.stream().status().failure;
  if (check_only && !failure.empty() && (wanted.mount_flags & MS_RDONLY) == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the volume has failed, and stays read-only: ", failure, ". Unmount, and mount again, which recovers"));
  }
  if (check_only) return absl::OkStatus();
  volume.SetNoAtime(LeavesAtime(wanted), LeavesDirAtime(wanted));
  SLOG_INFO("remounted: {}", options.empty() ? "rw" : options);
  return absl::OkStatus();
}

// Mounts, serves, unmounts and drains. `*watchdog` runs from the begin of the drain, and looks at
// the disk `device`. Sets `*cut_off` if the kernel ended the connection without an unmount; the volume
// is then drained all the same.
absl::Status ServeSession(const MountCommand& command, const VolumeConfig& config, Volume& volume,
                          SignalWaiter& signals, Launcher& launcher, dev_t device,
                          RecoveryHistory& history, Notices notices,
                          std::optional<DrainWatchdog>* watchdog, bool* cut_off) {
  Front front(volume);
  const PrimaryHost host = ThisHost();
  SALIUS_ASSIGN_OR_RETURN(
      const std::unique_ptr<StatusServer> status_server,
      StatusServer::Start({.volume = config.volume,
                           .backing = command.backing,
                           .mountpoint = command.mountpoint,
                           .acks = config.acks,
                           .source = [&volume] { return volume.stream().status(); },
                           .started_unix_ms = UnixMillis(),
                           .log_file = LogPlace(),
                           .host = config.allow_same_host ? std::nullopt : std::optional(host),
                           .history = &history,
                           .remount =
                               [&](const std::string& options, bool check_only) {
                                 return Remount(command.options, config, volume, options, check_only);
                               }}));
  std::unique_ptr<VolumeMetrics> metrics;
  if (!command.options.metrics.empty()) {
    SALIUS_ASSIGN_OR_RETURN(
        metrics, VolumeMetrics::Start(command.options.metrics, volume.stream(), config.acks));
  }
  // Not earlier: while the dead mount exists no program writes below it.
  ClearDeadMounts(command.backing, command.mountpoint);
  SALIUS_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection,
                          Connection::Mount(front, {.source = command.backing,
                                                 .mountpoint = command.mountpoint,
                                                 .mount_flags = command.options.mount_flags,
                                                 .threads = Threads(command.options),
                                                 .spin_ns = SpinNanos(command.options)}));
  std::optional<UmountNote> umount_note;
  umount_note.emplace(command.backing, command.mountpoint);
  connection->Start([&signals] { signals.Wake(); });

  absl::Status status = connection->Probe();
  if (status.ok()) {
    AwaitFirstMode(volume.stream(), !config.replicas.empty(), &notices);
    WarnOfSharedHosts(config, volume.stream(), host, &notices);
    WarnOfLosses(history, command.backing, &notices);
    // In the foreground the log says it.
    status = launcher.Ready(command.foreground ? "" : absl::StrJoin(notices, "\n"),
                            command.options.log_file, DefaultLog(config));
    // The pipeline logs with its lock held, and its timers must continue: only the log's own thread
    // may wait for the log's reader.
    if (status.ok()) LogInBackground();
  }
  bool unmounted = false;
  if (status.ok()) {
    SLOG_INFO("{} is mounted at {}", command.backing, command.mountpoint);
    NotifyReady();
    int signal = signals.Wait();
    while (signal == SIGHUP)
      signal = signals.Wait();  // SIGHUP means nothing here: no terminal, no file to read again
    unmounted = signal == 0;
    if (!unmounted) SLOG_INFO("told to end: draining");
    NotifyStopping();
  }
  status_server->SayDraining();
  watchdog->emplace(WatchOver(device));
  if (!unmounted) connection->Unmount();
  *cut_off = unmounted && WasCutOff(command, *connection);
  connection->Join();
  umount_note.reset();
  front.ReleaseAll();
  SALIUS_RETURN_IF_ERROR(status);
  return volume.Close();
}

}  // namespace

absl::Status CheckReplicas(const std::vector<std::string>& replicas, bool insecure) {
  const absl::StatusOr<std::vector<SocketAddress>> addresses =
      ResolveReplicas(replicas, Unresolved::kIsLeftEmpty);
  if (absl::IsNotFound(addresses.status()) || absl::IsFailedPrecondition(addresses.status())) {
    return absl::UnavailableError(addresses.status().message());  // names may lead elsewhere later
  }
  SALIUS_RETURN_IF_ERROR(addresses.status());
  for (size_t i = 0; i < replicas.size() && !insecure; ++i) {
    const SocketAddress& address = (*addresses)[i];
    if (address.length == 0 || IsLoopback(address)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "replica ", replicas[i], " is another host, and records travel unencrypted; if ",
        "the network is trusted, give the option \"insecure\""));
  }
  return absl::OkStatus();
}

absl::Status CheckMetrics(const std::string& metrics, bool insecure) {
  if (metrics.empty()) return absl::OkStatus();
  const absl::StatusOr<HostPort> host_port = ParseHostPort(metrics, 0);
  if (!host_port.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("metrics: ", host_port.status().message()));
  }
  const absl::StatusOr<SocketAddress> address = Resolve(*host_port);
  if (!address.ok()) {
    return absl::UnavailableError(absl::StrCat("metrics: ", address.status().message()));
  }
  if (insecure || IsLoopback(*address)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("metrics ", metrics,
                   " can be read from other hosts; if the network is trusted, give the option ",
                   "\"insecure\""));
}

absl::Status Serve(const MountCommand& command, Launcher& launcher) {
  SignalWaiter signals;
  SALIUS_RETURN_IF_ERROR(PrepareProcess());
  SALIUS_ASSIGN_OR_RETURN(VolumeDir dir, LockVolume(command.backing));
  SALIUS_RETURN_IF_ERROR(ClaimOnThisHost(dir));
  SALIUS_RETURN_IF_ERROR(OverrideConfig(command.options, &dir.config));
  SALIUS_RETURN_IF_ERROR(CheckReplicas(dir.config.replicas, command.options.insecure));
  SALIUS_RETURN_IF_ERROR(CheckMetrics(command.options.metrics, command.options.insecure));
  // From here on the terminal gets only notices, and the log gets the rest, also of a recovery.
  SALIUS_RETURN_IF_ERROR(launcher.TakeLog(command.options.log_file, DefaultLog(dir.config)));
  SALIUS_RETURN_IF_ERROR(InitLogging("salius-mount", command.options.log_level));
  RaiseLimits();
  Notices notices;
  SALIUS_RETURN_IF_ERROR(RecoverIfOpen(dir, command.options.recover, &notices));

  KeepFreedMemory();
  const VolumeConfig config = dir.config;
  SALIUS_ASSIGN_OR_RETURN(const std::unique_ptr<RecoveryHistory> history,
                          RecoveryHistory::Load(dir.salius_fd, dir.path));
  SALIUS_ASSIGN_OR_RETURN(const struct stat backing, fs::StatAt(dir.root_fd, ""));
  // Outlives the volume: after an early failure a thread may still hang on the disk, and the
  // volume's end waits for it.
  std::optional<DrainWatchdog> watchdog;
  SALIUS_ASSIGN_OR_RETURN(const std::unique_ptr<Volume> volume,
                          Volume::Open(std::move(dir), {.config = config,
                                                        .mountpoint = command.mountpoint,
                                                        .spin_ns = SpinNanos(command.options),
                                                        .insecure = command.options.insecure,
                                                        .noatime = LeavesAtime(command.options),
                                                        .nodiratime = LeavesDirAtime(command.options)},
                                       StartPipeline));
  bool cut_off = false;
  const absl::Status served =
      ServeSession(command, config, *volume, signals, launcher, backing.st_dev, *history,
                   std::move(notices), &watchdog, &cut_off);
  if (!served.ok()) {
    // A session that never served has nothing to drain, and is closed all the same; after a failed
    // Close this only says so again.
    const absl::Status closed = volume->Close();
    if (!closed.ok()) SLOG_ERROR("the volume stays open: {}", closed.ToString());
    return served;
  }
  SLOG_INFO("{} is clean", command.backing);
  return cut_off ? CutOffError(command) : absl::OkStatus();
}

}  // namespace salius
