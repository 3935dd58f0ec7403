#include "client/cli/status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/exit_code.h"
#include "client/cli/health.h"
#include "client/cli/rpc.h"
#include "client/fuse/mount_table.h"
#include "client/status/socket_path.h"
#include "client/status/status_reader.h"
#include "common/check.h"
#include "common/daemon.h"
#include "common/file.h"
#include "common/net.h"
#include "common/options.h"
#include "common/strings.h"
#include "log/recovery_notes.h"
#include "storage/host_claim.h"
#include "transport/credentials.h"

namespace salius::cli {
namespace {

constexpr int64_t kWatchIntervalUs = 1'000'000;

struct StatusPlan {
  std::string place, replica, keys;
  bool json = false, watch = false;
  uint64_t timeout_ms = static_cast<uint64_t>(kCallTimeout.count());

  std::chrono::milliseconds timeout() const { return std::chrono::milliseconds(timeout_ms); }
};

// A result, and the text and exit code that show it.
struct Shown {
  std::string text;
  int code = kExitOk;
  HealthLevel health = HealthLevel::kHealthy;  // of a volume
};

Options StatusOptions(StatusPlan& plan) {
  Options options(
      "salius status", "[DIR|MOUNTPOINT|UUID]",
      "Shows the mode a volume is really in, its watermarks and its replicas. Without an\n"
      "argument: every volume mounted on this host. A volume that is not mounted is read\n"
      "from its state file, given its directory. The exit code says how the volume is.");
  options.Text("replica", "HOST[:PORT]", &plan.replica, "show this replica instead of a volume");
  options.Text("keys", "FILE", &plan.keys,
               "with --replica: this host's key and certificate, of `salius keys`");
  options.Switch("json", &plan.json,
                 "print JSON, one object to a line (docs/status-json.md)");
  options.Switch("watch", &plan.watch, "show it again every second, until interrupted");
  options.Millis("timeout", "TIME", &plan.timeout_ms,
                 "how long to wait for a daemon's answer (5s)");
  options.Note(
      "Exit codes: 0 healthy: replicated, every replica counts (or none is configured),\n"
      "1 failed: read-only, 2 usage, 3 no such volume or directory, 5 its file system cannot\n"
      "hold a volume, 7 hung: its process is there and does not answer, or a replica does not,\n"
      "8 what is on the disk cannot be trusted, 9 no permission, 10 degraded: fewer members\n"
      "than replicas, 11 local: no replica counts, 12 needs recovery: its process has died,\n"
      "13 not mounted (clean), 14 busy: it starts, recovers or drains, 15 a recovery gave\n"
      "records up (salius acknowledge). Of several volumes the worst.");
  return options;
}

// Returns the process that holds a lock on the file, from /proc/locks: "pid N", or empty.
std::string LockHolder(int fd) {
  struct stat attr {};
  if (fstat(fd, &attr) != 0) return "";
  const absl::StatusOr<std::string> locks = ReadWholeFile("/proc/locks");
  if (!locks.ok()) return "";
  const std::string file = absl::StrFormat("%02x:%02x:%u", major(attr.st_dev), minor(attr.st_dev),
                                           static_cast<uint64_t>(attr.st_ino));
  for (const absl::string_view line : absl::StrSplit(*locks, '\n')) {
    // "1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF"
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() >= 6 && words[1] == "FLOCK" && words[5] == file) {
      return absl::StrCat("pid ", words[4]);
    }
  }
  return "";
}

// Returns whether the process "pid N" is stopped, by a signal or a debugger.
bool IsStopped(const std::string& holder) {
  absl::string_view pid = holder;
  if (!absl::ConsumePrefix(&pid, "pid ")) return false;
  const absl::StatusOr<std::string> stat = ReadWholeFile(absl::StrCat("/proc/", pid, "/stat"));
  if (!stat.ok()) return false;
  // "12 (name) T ...": the name may contain any character.
  const size_t name_ends = stat->rfind(") ");
  const char state = name_ends == std::string::npos ? '?' : (*stat)[name_ends + 2];
  return state == 'T' || state == 't';
}

Shown ShowMounted(const control::VolumeStatusResponse& status, bool json) {
  const HealthLevel health = JudgeMounted(status).health;
  return {json ? MountedJson(status) + "\n" : MountedText(status), ExitCodeOf(health), health};
}

// Shows a volume whose daemon does not answer; nothing else is known of it.
Shown ShowUnanswered(HealthLevel health, const absl::Status& why, bool json) {
  const std::string text(why.message());
  return {json ? ErrorJson(HealthName(health), ExitCodeOf(health), text) + "\n"
               : VerdictText({health, text}) + "\n",
          ExitCodeOf(health), health};
}

// Returns the health of a volume whose daemon gave no answer at its socket.
HealthLevel HealthOfSilence(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) return HealthLevel::kHung;
  return absl::IsPermissionDenied(status) ? HealthLevel::kNoPermission
                                          : HealthLevel::kNeedsRecovery;
}

// Returns the directories of sockets: root's, for the mounts, and this user's, for direct volumes.
std::vector<std::string> StatusDirectories() {
  std::vector<std::string> directories = {kRunDirectory};
  if (ClaimDirectory() != kRunDirectory) directories.push_back(ClaimDirectory());
  return directories;
}

struct Asked {
  std::string socket;
  absl::StatusOr<control::VolumeStatusResponse> status;
};

// Asks every mounted volume at once: a volume that hangs delays no other's answer.
std::vector<Asked> AskEveryVolume(std::chrono::milliseconds timeout) {
  std::vector<std::pair<std::string, std::future<absl::StatusOr<control::VolumeStatusResponse>>>>
      calls;
  for (const std::string& directory : StatusDirectories()) {
    for (const std::string& socket : VolumeSocketsIn(directory)) {
      calls.emplace_back(socket, std::async(std::launch::async, [socket, timeout] {
                           return CallVolumeStatus(socket, timeout);
                         }));
    }
  }
  std::vector<Asked> asked;
  for (auto& [socket, call] : calls) asked.push_back({socket, call.get()});
  return asked;
}

absl::StatusOr<Shown> ShowPath(const StatusPlan& plan) {
  const absl::StatusOr<std::string> backing = BackingDirectoryOf(plan.place);
  std::error_code error;
  std::string path = std::filesystem::absolute(plan.place, error).lexically_normal();
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  // Ask the daemons first: that needs no access to a disk, which may have failed or may hang.
  const std::vector<Asked> asked = AskEveryVolume(plan.timeout());
  for (const Asked& one : asked) {
    if (!one.status.ok()) continue;
    if (one.status->mountpoint() == path || one.status->backing() == path ||
        (backing.ok() && one.status->backing() == *backing)) {
      return ShowMounted(*one.status, plan.json);
    }
  }
  SALIUS_RETURN_IF_ERROR(backing.status());
  SALIUS_ASSIGN_OR_RETURN(OfflineStatus offline, ReadOfflineStatus(*backing));
  for (const std::string& directory : StatusDirectories()) {
    const std::string socket = SocketPathOf(offline.config.volume, directory);
    for (const Asked& one : asked) {
      offline.stuck =
          offline.stuck || (one.socket == socket && absl::IsDeadlineExceeded(one.status.status()));
    }
  }
  const HealthLevel health = JudgeOffline(offline).health;
  return Shown{plan.json ? OfflineJson(offline) + "\n" : OfflineText(offline), ExitCodeOf(health),
               health};
}

Shown ShowEveryVolume(const StatusPlan& plan) {
  Shown all;
  bool any = false;
  for (const Asked& asked : AskEveryVolume(plan.timeout())) {
    if (any && !plan.json) all.text += "\n";
    const Shown one =
        asked.status.ok()
            ? ShowMounted(*asked.status, plan.json)
            : ShowUnanswered(HealthOfSilence(asked.status.status()), asked.status.status(), plan.json);
    all.text += one.text;
    all.health = any ? std::max(all.health, one.health) : one.health;
    any = true;
  }
  if (!any) {
    all.health = HealthLevel::kNotMounted;
    if (!plan.json) all.text = "no volume is mounted on this host\n";
  }
  all.code = ExitCodeOf(all.health);
  return all;
}

absl::StatusOr<Shown> ShowReplica(const StatusPlan& plan) {
  SALIUS_ASSIGN_OR_RETURN(const std::string name, ReplicaAddress(plan.replica));
  SALIUS_ASSIGN_OR_RETURN(const std::shared_ptr<Credentials> keys, Credentials::Load(plan.keys));
  SALIUS_ASSIGN_OR_RETURN(const auto status, CallReplicaStatus(name, plan.timeout(), keys));
  return Shown{plan.json ? ReplicaJson(name, status) + "\n" : ReplicaText(name, status), kExitOk};
}

absl::StatusOr<Shown> Show(const StatusPlan& plan) {
  if (!plan.replica.empty()) return ShowReplica(plan);
  if (plan.place.empty()) return ShowEveryVolume(plan);
  if (const absl::StatusOr<VolumeId> volume = ParseVolumeId(plan.place); volume.ok()) {
    const absl::StatusOr<control::VolumeStatusResponse> status =
        CallVolumeStatus(StatusSocketOf(*volume), plan.timeout());
    if (absl::IsNotFound(status.status())) {
      return absl::NotFoundError(absl::StrCat("volume ", plan.place,
                                              " is not mounted here; to read its state file, give "
                                              "its directory"));
    }
    if (!status.ok()) {
      return ShowUnanswered(HealthOfSilence(status.status()), status.status(), plan.json);
    }
    return ShowMounted(*status, plan.json);
  }
  return ShowPath(plan);
}

// Reports why there is nothing to show; returns the exit code.
int ReportNone(const StatusPlan& plan, const absl::Status& status) {
  const ExitCode code = ExitCodeOf(status);
  if (plan.json && code != kExitUsage) {
    std::printf("%s\n", ErrorJson(ErrorName(code), code, Sv(status.message())).c_str());
  }
  return Report("status", status);
}

int Watch(const StatusPlan& plan) {
  SignalWaiter signals;
  for (;;) {
    const absl::StatusOr<Shown> shown = Show(plan);
    const std::string time =
        absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::Now(), absl::LocalTimeZone());
    // On a screen: clear it first. In a pipe one output follows the other.
    if (!plan.json) std::printf("\033[H\033[2J%s\n\n", time.c_str());
    if (shown.ok()) {
      std::fputs(shown->text.c_str(), stdout);
    } else if (ReportNone(plan, shown.status()) == kExitUsage) {
      return kExitUsage;
    }
    if (std::fflush(stdout) != 0) return kExitFailed;
    if (signals.WaitFor(kWatchIntervalUs) >= 0) return kExitOk;
  }
}

}  // namespace

absl::StatusOr<std::string> BackingDirectoryOf(const std::string& given) {
  std::error_code error;
  std::string path = std::filesystem::absolute(given, error).lexically_normal();
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  absl::StatusOr<std::string> backing = BackingOf(path);
  if (backing.ok() || error) return backing;
  path = std::filesystem::canonical(path, error);
  if (error) return ErrnoStatus(error.value(), given);
  backing = BackingOf(path);
  return backing.ok() ? backing : path;
}

std::string StatusSocketOf(const VolumeId& volume) {
  std::string own = SocketPathOf(volume, ClaimDirectory());
  std::error_code error;
  return std::filesystem::exists(own, error) ? own : SocketPathOf(volume);
}

absl::StatusOr<OfflineStatus> ReadOfflineStatus(const std::string& backing) {
  SALIUS_ASSIGN_OR_RETURN(const VolumeDir directory, VolumeDir::Open(backing, /*lock=*/false));
  SALIUS_ASSIGN_OR_RETURN(const StateFile state,
                          StateFile::Open(*directory.backing, directory.salius_fd, kStateFileName));
  OfflineStatus status;
  status.backing = directory.path;
  status.config = directory.config;
  status.state = state.state();
  const absl::StatusOr<UniqueFd> lock = OpenAt(directory.salius_fd, kLockFileName, O_RDONLY);
  if (lock.ok()) status.in_use_by = LockHolder(lock->get());
  status.stuck = IsStopped(status.in_use_by);
  // Nothing depends on the notes: notes that cannot be read count as none.
  status.recoveries =
      ReadRecoveryNotes(*directory.backing, directory.salius_fd).value_or(RecoveryNotes());
  return status;
}

int RunStatus(absl::Span<const std::string> words) {
  StatusPlan plan;
  Options options = StatusOptions(plan);
  if (const absl::Status parsed = options.Parse(words, 0, 1); !parsed.ok()) {
    return Report("status", parsed);
  }
  if (options.answer().has_value()) {
    std::printf("%s", options.answer()->c_str());
    return kExitOk;
  }
  if (!options.places().empty()) plan.place = options.places()[0];
  if (!plan.place.empty() && !plan.replica.empty()) {
    return Report("status", absl::InvalidArgumentError("give a volume or --replica, not both"));
  }
  if (plan.watch) return Watch(plan);
  const absl::StatusOr<Shown> shown = Show(plan);
  if (!shown.ok()) return ReportNone(plan, shown.status());
  std::fputs(shown->text.c_str(), stdout);
  return shown->code;
}

}  // namespace salius::cli
