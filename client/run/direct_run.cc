#include "client/run/direct_run.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/direct/coordinator/attach_server.h"
#include "client/direct/coordinator/coordinator.h"
#include "client/direct/process/attach.h"
#include "client/direct/process/process.h"
#include "client/gate/mount_gates.h"
#include "client/mount/address_checks.h"
#include "client/mount/drain_watchdog.h"
#include "client/run/await_command.h"
#include "client/run/child.h"
#include "client/run/program.h"
#include "client/run/starter.h"
#include "client/run/supervisor.h"
#include "client/status/recovery_history.h"
#include "client/status/status_server.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/deadline.h"
#include "common/file.h"
#include "common/host.h"
#include "common/log.h"
#include "common/strings.h"
#include "log/state_file.h"
#include "recovery/recover_if_open.h"
#include "storage/direct_volume.h"
#include "storage/host_claim.h"
#include "storage/volume_config.h"
#include "storage/volume_rights.h"
#include "transport/credentials.h"

namespace salius::run {
namespace {

constexpr char kSocketName[] = "direct.sock";
// The time that replicas get before the command starts without them.
constexpr std::chrono::seconds kFirstMode{2};
// Processes that have not ended this long after the command were left behind by it.
constexpr std::chrono::milliseconds kLeftBehind{500};
// A drain hangs if the disk completes nothing for this long; then a recovery is better.
constexpr std::chrono::seconds kDrainIdle{60};
constexpr std::chrono::minutes kDrainMost{15};

// The gate of one command's outputs, in this process. Used by one thread.
class Gate {
 public:
  // Takes part in the session as a process of the command does. The descriptors stay the caller's.
  absl::Status Begin(const VolumeDir& dir, const int* descriptors, uint64_t window_bytes) {
    direct::Attached attached;
    attached.window_bytes = window_bytes;
    for (size_t i = 0; i < direct::kAttachDescriptors; ++i) {
      fds_[i].Reset(::fcntl(descriptors[i], F_DUPFD_CLOEXEC, 0));
      if (!fds_[i].valid()) return ErrnoStatus(errno, "descriptors of the gate");
      attached.descriptors[i] = fds_[i].get();
    }
    if (const int error = process_.Adopt(attached); error != 0) {
      return ErrnoStatus(error, "the shared memory of the gate");
    }
    struct stat window {
    }, root{};
    if (::fstat(fds_[direct::kWindowDescriptor].get(), &window) != 0 ||
        ::fstat(fds_[direct::kRootDescriptor].get(), &root) != 0) {
      return ErrnoStatus(errno, dir.path);
    }
    std::error_code error;
    surroundings_.root = std::filesystem::canonical(dir.path, error).string();
    if (error) return ErrnoStatus(error.value(), dir.path);
    surroundings_.devices = {root.st_dev};
    surroundings_.window = {window.st_dev, window.st_ino};
    return absl::OkStatus();
  }
  bool external() const { return process_.window().header().promises.external.load() != 0; }
  // Has the command's outputs gated.
  void Gates(ChildOptions& child) {
    surroundings_.held = OpenStreams();
    child.held = HeldText(surroundings_.held);
    child.supervise = [this](UniqueFd listener) {
      supervisor_.emplace(std::move(listener), process_.gate(), surroundings_);
    };
  }

 private:
  UniqueFd fds_[direct::kAttachDescriptors];
  direct::Process process_;
  Surroundings surroundings_;
  std::optional<Supervisor> supervisor_;
};

// A connection that keeps the session of another salius-run, as that of any process of its command.
class Membership {
 public:
  static absl::StatusOr<Membership> Join(const std::string& socket) {
    const direct::Attached attached = direct::AttachTo(socket.c_str());
    if (attached.error != 0) return ErrnoStatus(attached.error, attached.text);
    Membership member{UniqueFd(attached.connection)};
    for (size_t i = 0; i < direct::kAttachDescriptors; ++i) {
      member.descriptors_[i].Reset(attached.descriptors[i]);
    }
    member.window_bytes_ = attached.window_bytes;
    return member;
  }
  // Begins the gate of a command in this session.
  absl::Status Begin(Gate& gate, const VolumeDir& dir) const {
    int descriptors[direct::kAttachDescriptors];
    for (size_t i = 0; i < direct::kAttachDescriptors; ++i) descriptors[i] = descriptors_[i].get();
    return gate.Begin(dir, descriptors, window_bytes_);
  }
  // Gives the session up, and waits until the volume is drained and closed, if this was the last.
  void Leave() {
    if (::shutdown(connection_.get(), SHUT_WR) != 0) return;
    char byte = 0;
    while (::read(connection_.get(), &byte, 1) < 0 && errno == EINTR) {
    }
  }

 private:
  explicit Membership(UniqueFd connection) : connection_(std::move(connection)) {}
  UniqueFd connection_;
  UniqueFd descriptors_[direct::kAttachDescriptors];
  uint64_t window_bytes_ = 0;
};

// Returns the error with a code that is not one of the command's own.
absl::Status OfVolume(const absl::Status& status) {
  return status.ok() ? status : absl::FailedPreconditionError(status.message());
}

// Returns the error of a directory that is missing or has no volume, with what makes it one.
absl::Status Explained(const absl::Status& status, const std::string& directory) {
  if (!absl::IsNotFound(status)) return status;
  const std::string name = ShellQuote(directory);
  return absl::NotFoundError(absl::StrCat(status.message(), "; `mkdir -p ", name,
                                          "` and `salius init --direct --replicas ADDRESSES ", name,
                                          "` make a direct volume"));
}

absl::StatusOr<int> RunChild(ChildOptions options, const std::string& socket) {
  options.socket = socket;
  SALIUS_ASSIGN_OR_RETURN(const pid_t child, StartChild(options));
  return AwaitCommand(child);
}

// The same on the thread that still has all capabilities.
absl::StatusOr<int> RunChild(Starter& starter, ChildOptions options, const std::string& socket) {
  options.socket = socket;
  absl::StatusOr<pid_t> child;
  starter.Run([&] { child = StartChild(options); });
  SALIUS_RETURN_IF_ERROR(child.status());
  return AwaitCommand(*child);
}

absl::Status RecoverBefore(VolumeDir& dir, bool refuse, std::shared_ptr<Credentials> keys) {
  SALIUS_ASSIGN_OR_RETURN(const std::optional<RecoveryReport> report,
                          RecoverIfOpen(dir, refuse ? "--recover refuse" : "", std::move(keys)));
  if (!report.has_value()) return absl::OkStatus();
  Say(absl::StrFormat("recovered %s: epoch %u up to record %u, %u records replayed", dir.path,
                      report->epoch, report->decided, report->records));
  return absl::OkStatus();
}

// The session of one volume, from its lock to its clean end. Used by one thread.
class Session {
 public:
  explicit Session(const RunCommand& command) : command_(command) {}

  absl::Status Begin(VolumeDir dir);
  const std::string& socket() const { return socket_; }
  // Has the outputs of the command gated, if that is the contract.
  absl::Status Gates(ChildOptions& child);
  // Awaits the last process of the command, drains and closes the volume.
  absl::Status End();
  void PrintStats() const;

 private:
  void AwaitFirstMode() const;

  const RunCommand& command_;
  VolumeDir dir_;
  std::string socket_;
  dev_t device_ = 0;
  std::unique_ptr<RecoveryHistory> history_;
  std::unique_ptr<direct::Coordinator> coordinator_;
  int descriptors_[direct::kAttachDescriptors] = {};
  std::unique_ptr<direct::AttachServer> server_;
  std::unique_ptr<StatusServer> status_server_;
  uint64_t window_bytes_ = 0;
  Gate gate_;
};

absl::Status Session::Begin(VolumeDir dir) {
  KeepMemoryPrivate();
  dir_ = std::move(dir);
  SALIUS_RETURN_IF_ERROR(CheckVolumeKind(dir_.config, dir_.path, VolumeKind::kDirect));
  SALIUS_RETURN_IF_ERROR(CheckDirectOwner(dir_));
  SALIUS_RETURN_IF_ERROR(CheckNotVolatile(dir_.root_fd, dir_.path));
  SALIUS_RETURN_IF_ERROR(ClaimOnThisHost(dir_));
  SALIUS_ASSIGN_OR_RETURN(std::shared_ptr<Credentials> keys,
                          Credentials::Load(command_.keys.value_or(dir_.config.keys)));
  SALIUS_RETURN_IF_ERROR(
      CheckReplicas(dir_.config.replicas, command_.insecure || keys != nullptr));
  SALIUS_RETURN_IF_ERROR(RecoverBefore(dir_, command_.recover == "refuse", keys));
  SALIUS_ASSIGN_OR_RETURN(const struct stat root, dir_.backing->Stat(dir_.root_fd));
  device_ = root.st_dev;
  SALIUS_ASSIGN_OR_RETURN(history_,
                          RecoveryHistory::Load(*dir_.backing, dir_.salius_fd, dir_.path));
  SALIUS_ASSIGN_OR_RETURN(StateFile state,
                          StateFile::Open(*dir_.backing, dir_.salius_fd, kStateFileName));
  StreamOptions options;
  options.config = dir_.config;
  options.session_name = dir_.path;
  options.insecure = command_.insecure;
  options.keys = std::move(keys);
  options.key_rotation_ns = static_cast<int64_t>(command_.key_rotation_s * 1'000'000'000);
  SALIUS_ASSIGN_OR_RETURN(coordinator_,
                          direct::Coordinator::Start(dir_, std::move(state), std::move(options)));
  const direct::Coordinator::Handles handles = coordinator_->handles();
  window_bytes_ = handles.window_bytes;
  direct::Promises& promises = coordinator_->window().header().promises;
  promises.external.store(command_.commit == "external" ? 1 : 0);
  promises.lazy.store(command_.trigger == "output" ? 1 : 0);
  descriptors_[direct::kWindowDescriptor] = handles.window_fd;
  descriptors_[direct::kSocketDescriptor] = handles.socket_fd;
  descriptors_[direct::kLockDescriptor] = dir_.lock_fd;
  descriptors_[direct::kRootDescriptor] = dir_.root_fd;
  socket_ = absl::StrCat(dir_.path, "/", kSaliusDir, "/", kSocketName);
  absl::StatusOr<std::unique_ptr<direct::AttachServer>> server =
      direct::AttachServer::Start(socket_, handles.window_bytes, descriptors_);
  if (!server.ok()) {
    SALIUS_RETURN_IF_ERROR(coordinator_->Stop());  // nothing happened yet: the volume is clean
    return server.status();
  }
  server_ = *std::move(server);
  StatusServerOptions status;
  status.volume = dir_.config.volume;
  status.backing = dir_.path;
  status.acks = dir_.config.acks;
  status.contract = command_.commit;
  if (command_.trigger == "output") status.contract += " trigger=output";
  status.run_directory = ClaimDirectory();
  status.source = [this] {
    SessionStatus now = coordinator_->status();
    now.direct->processes = server_->connections();
    return now;
  };
  status.started_unix_ms = static_cast<uint64_t>(SystemClock().RealtimeNanos()) / 1'000'000;
  status.log_file = LogPlace();
  if (!dir_.config.allow_same_host) status.host = ThisHost();
  status.history = history_.get();
  absl::StatusOr<std::unique_ptr<StatusServer>> serves = StatusServer::Start(std::move(status));
  if (serves.ok()) {
    status_server_ = *std::move(serves);
  } else {
    Say(absl::StrCat("salius status will not see this run: ", serves.status().message()));
  }
  AwaitFirstMode();
  return absl::OkStatus();
}

absl::Status Session::Gates(ChildOptions& child) {
  if (command_.commit != "external") return absl::OkStatus();
  SALIUS_RETURN_IF_ERROR(gate_.Begin(dir_, descriptors_, window_bytes_));
  gate_.Gates(child);
  return absl::OkStatus();
}

void Session::AwaitFirstMode() const {
  if (dir_.config.replicas.empty()) return;
  const Deadline bound = Deadline::After(SystemClock(), kFirstMode);
  const direct::Phase wanted = direct::Phase::kReplicated;
  while (coordinator_->window().phase().phase() != wanted && !bound.Expired(SystemClock())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (coordinator_->window().phase().phase() == wanted) return;
  const SessionStatus now = coordinator_->status();
  std::string text = absl::StrCat(dir_.path, " begins in mode ", now.mode,
                                  ": syncs wait for the local disk; ", now.mode_detail);
  for (const ReplicaReport& replica : now.replicas) {
    if (replica.connected) continue;
    const std::string name = absl::StrCat("replica ", replica.address, ": ");
    absl::StrAppend(&text, "; ", absl::StartsWith(replica.problem, name) ? "" : name,
                    replica.problem.empty() ? "does not answer" : replica.problem);
  }
  Say(text);
}

absl::Status Session::End() {
  // A process between execve(2) and its attachment has no connection. It is below this process.
  if (!AwaitLeftBehind(kLeftBehind.count())) {
    Say(absl::StrFormat("the command has ended; waiting for %u of its processes",
                        std::max<size_t>(server_->connections(), 1)));
    AwaitLeftBehind(-1);
  }
  server_->Release();
  const Deadline soon = Deadline::After(SystemClock(), kLeftBehind);
  while (server_->connections() > 0 && !soon.Expired(SystemClock())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (const size_t left = server_->connections(); left > 0) {
    Say(absl::StrFormat("the command has ended; waiting for %u processes of other commands", left));
  }
  server_->AwaitLast();
  if (status_server_ != nullptr) status_server_->SetDraining();
  absl::Status ended;
  {
    const DrainWatchdog watchdog(
        {.idle = kDrainIdle,
         .most = kDrainMost,
         .progress = [this] { return WrittenSoFar(device_); },
         .give_up =
             [](const std::string& why) {
               Say(absl::StrCat(why, ": giving up; the volume stays open and must be recovered"));
               ::_exit(kExitFailure);
             }});
    ended = coordinator_->Stop();
  }
  status_server_.reset();
  server_.reset();
  return ended;
}

void Session::PrintStats() const {
  const DirectUse use = *coordinator_->status().direct;
  std::fprintf(stderr, "salius-run: %ju syncs, %ju of them by fsync(2); %ju records, %ju bytes\n",
               uintmax_t{use.syncs}, uintmax_t{use.real_syncs}, uintmax_t{use.records},
               uintmax_t{use.record_bytes});
  if (command_.commit == "external") {
    std::fprintf(stderr,
                 "salius-run: %ju syncs returned early, %ju of them owed; %ju outputs waited, %ju "
                 "of them for a real sync; %ju were refused%s%s\n",
                 uintmax_t{use.early_syncs}, uintmax_t{use.owed_syncs}, uintmax_t{use.outputs},
                 uintmax_t{use.paid_outputs}, uintmax_t{use.refused_outputs},
                 use.early_end.empty() ? "" : "; early return has ended: ", use.early_end.c_str());
  }
  for (const DirectUse::Reason& reason : use.reasons) {
    std::fprintf(stderr, "salius-run:   %ju because of: %s\n", uintmax_t{reason.syncs},
                 reason.name.c_str());
  }
}

// Runs the command beside those of the salius-run that has the volume.
absl::StatusOr<int> RunBeside(const RunCommand& command, ChildOptions child, const VolumeDir& dir,
                              const absl::Status& in_use) {
  const std::string socket = absl::StrCat(dir.path, "/", kSaliusDir, "/", kSocketName);
  absl::StatusOr<Membership> member = Membership::Join(socket);
  if (!member.ok() && StatusErrno(member.status()) == EPERM) {
    return absl::FailedPreconditionError(absl::StrCat(
        dir.path, " is in use, and this salius-run cannot join: ", member.status().message()));
  }
  if (!member.ok()) return OfVolume(in_use);
  Gate gate;
  SALIUS_RETURN_IF_ERROR(OfVolume(member->Begin(gate, dir)));
  const bool external = command.commit == "external";
  if (gate.external() != external) {
    return absl::FailedPreconditionError(
        absl::StrCat(dir.path, " is in use with --commit=", external ? "sync" : "external",
                     ": all commands on it need the same"));
  }
  if (external) gate.Gates(child);
  SALIUS_ASSIGN_OR_RETURN(const int code, RunChild(std::move(child), socket));
  if (!AwaitLeftBehind(kLeftBehind.count())) {
    Say("the command has ended; waiting for processes that it left behind");
    AwaitLeftBehind(-1);
  }
  member->Leave();
  return code;
}

// Refuses a command within one of salius-run on another volume: the library would attach the program
// to that one, since a process has one direct volume.
absl::Status CheckOuterVolume(const VolumeDir& dir) {
  const char* const outer = std::getenv(direct::kAttachVariable);
  if (outer == nullptr || *outer == '\0') return absl::OkStatus();
  const std::string socket = absl::StrCat(dir.path, "/", kSaliusDir, "/", kSocketName);
  struct stat theirs {}, ours {};
  if (::stat(outer, &theirs) == 0 && ::stat(socket.c_str(), &ours) == 0 &&
      theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "this is within a command of salius-run --direct on another volume (", outer,
      "), and a program has one: start salius-run --direct ", dir.path, " outside of it"));
}

}  // namespace

absl::StatusOr<int> Run(const RunCommand& command) {
  if (std::getenv(gate::kGatesVariable) != nullptr) {
    return absl::FailedPreconditionError(
        "this is within a command of salius-run at mounts, whose outputs are gated there: start "
        "salius-run --direct outside of it");
  }
  SALIUS_ASSIGN_OR_RETURN(ChildOptions child, PrepareChild(command.command, Programs::kLogged));
  const absl::StatusOr<VolumeDir> unlocked = VolumeDir::Open(command.direct, /*lock=*/false);
  SALIUS_RETURN_IF_ERROR(OfVolume(Explained(unlocked.status(), command.direct)));
  SALIUS_RETURN_IF_ERROR(
      OfVolume(CheckVolumeKind(unlocked->config, unlocked->path, VolumeKind::kDirect)));
  SALIUS_RETURN_IF_ERROR(CheckOuterVolume(*unlocked));
  AdoptOrphans();
  absl::StatusOr<VolumeDir> dir = VolumeDir::Open(command.direct, /*lock=*/true);
  if (absl::IsUnavailable(dir.status())) {
    return RunBeside(command, std::move(child), *unlocked, dir.status());
  }
  SALIUS_RETURN_IF_ERROR(OfVolume(dir.status()));
  Starter starter;
  const absl::StatusOr<std::string> rights = KeepRightsForVolume({.signals_command = true});
  SALIUS_RETURN_IF_ERROR(OfVolume(rights.status()));
  if (!rights->empty()) SLOG_INFO("{}", *rights);
  Session session(command);
  SALIUS_RETURN_IF_ERROR(OfVolume(session.Begin(*std::move(dir))));
  const absl::Status gated = session.Gates(child);
  const absl::StatusOr<int> code =
      gated.ok() ? RunChild(starter, std::move(child), session.socket())
                 : absl::StatusOr<int>(gated);
  const absl::Status ended = session.End();
  if (command.stats) session.PrintStats();
  if (!ended.ok()) {
    Say(absl::StrCat("the volume stays open, and is recovered at its next use: ", ended.message()));
    // The command's own code would say that what it synced is durable.
    if (command.commit == "external") return kExitFailure;
  }
  return code;
}

}  // namespace salius::run
