#include "client/cli/status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/rpc.h"
#include "client/fuse/mount_table.h"
#include "client/status/socket_path.h"
#include "client/status/status_reader.h"
#include "common/check.h"
#include "common/daemon.h"
#include "common/file.h"

namespace salius::cli {
namespace {

constexpr int64_t kWatchIntervalUs = 1'000'000;

struct StatusPlan {
  std::string place, replica;
  bool json = false, watch = false;
};

// What was found out, and as what it is shown.
struct Shown {
  std::string text;
  ExitCode code = kExitOk;
};

Options StatusOptions(StatusPlan& plan) {
  Options options(
      "status", "[DIR|MOUNTPOINT|UUID]",
      "Shows the mode a volume is really in, its watermarks and its replicas. Without an\n"
      "argument: every volume mounted on this host. A volume that is not mounted is read\n"
      "from its state file, given its directory.");
  options.Text("replica", "HOST:PORT", &plan.replica, "show this replica instead of a volume");
  options.Switch("json", &plan.json, "print JSON, one object to a line");
  options.Switch("watch", &plan.watch, "show it again every second, until interrupted");
  options.Note(
      "Exit codes: 0 shown, 1 shown: the volume has failed (read-only), 2 usage, 3 no such volume "
      "or\n"
      "directory, 7 the replica or the mount does not answer, 8 the state file cannot be trusted.");
  return options;
}

// Who holds a lock on the file, from /proc/locks: "pid N", or empty.
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

Shown ShowMounted(const control::VolumeStatusResponse& status, bool json) {
  return {json ? MountedJson(status) + "\n" : MountedText(status),
          status.failure().empty() ? kExitOk : kExitFailed};
}

// What the mount of a directory or mount point says that cannot be looked into: its disk may have
// failed.
std::optional<control::VolumeStatusResponse> MountedAt(const std::string& given) {
  std::error_code error;
  std::string path = std::filesystem::absolute(given, error).lexically_normal();
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  for (const std::string& socket : VolumeSocketsIn(kRunDirectory)) {
    const absl::StatusOr<control::VolumeStatusResponse> status = CallVolumeStatus(socket);
    if (status.ok() && (status->mountpoint() == path || status->backing() == path)) return *status;
  }
  return std::nullopt;
}

absl::StatusOr<Shown> ShowPath(const std::string& given, bool json) {
  const absl::StatusOr<std::string> backing = BackingDirectoryOf(given);
  const absl::StatusOr<OfflineStatus> read =
      backing.ok() ? ReadOfflineStatus(*backing) : backing.status();
  if (!read.ok()) {
    const std::optional<control::VolumeStatusResponse> mounted = MountedAt(given);
    return mounted.has_value() ? absl::StatusOr<Shown>(ShowMounted(*mounted, json)) : read.status();
  }
  const OfflineStatus& offline = *read;
  const auto mounted = CallVolumeStatus(SocketPathOf(offline.config.volume));
  if (mounted.ok()) return ShowMounted(*mounted, json);
  return Shown{json ? OfflineJson(offline) + "\n" : OfflineText(offline), kExitOk};
}

absl::StatusOr<Shown> ShowEveryVolume(bool json) {
  Shown all;
  for (const std::string& socket : VolumeSocketsIn(kRunDirectory)) {
    const absl::StatusOr<control::VolumeStatusResponse> status = CallVolumeStatus(socket);
    if (!all.text.empty() && !json) all.text += "\n";
    if (!status.ok()) {
      // Left behind by a process that died; the volume's directory is not known from here.
      if (!json) absl::StrAppend(&all.text, socket, ": nobody answers (its mount has died)\n");
      continue;
    }
    const Shown one = ShowMounted(*status, json);
    all.text += one.text;
    if (one.code != kExitOk) all.code = one.code;
  }
  if (all.text.empty() && !json) all.text = "no volume is mounted on this host\n";
  return all;
}

absl::StatusOr<Shown> Show(const StatusPlan& plan) {
  if (!plan.replica.empty()) {
    SALIUS_ASSIGN_OR_RETURN(const auto status, CallReplicaStatus(plan.replica));
    return Shown{
        plan.json ? ReplicaJson(plan.replica, status) + "\n" : ReplicaText(plan.replica, status),
        kExitOk};
  }
  if (plan.place.empty()) return ShowEveryVolume(plan.json);
  if (const absl::StatusOr<VolumeId> volume = VolumeId::Parse(plan.place); volume.ok()) {
    absl::StatusOr<control::VolumeStatusResponse> status = CallVolumeStatus(SocketPathOf(*volume));
    if (absl::IsNotFound(status.status())) {
      return absl::NotFoundError(absl::StrCat("volume ", plan.place,
                                              " is not mounted here; to read its state file, give "
                                              "its directory"));
    }
    if (!status.ok()) return status.status();
    return ShowMounted(*status, plan.json);
  }
  return ShowPath(plan.place, plan.json);
}

int Watch(const StatusPlan& plan) {
  SignalWaiter signals;
  for (;;) {
    const absl::StatusOr<Shown> shown = Show(plan);
    const std::string time =
        absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::Now(), absl::LocalTimeZone());
    // A screen is cleared; in a pipe one picture follows the other.
    if (!plan.json) std::printf("\033[H\033[2J%s\n\n", time.c_str());
    if (shown.ok()) {
      std::fputs(shown->text.c_str(), stdout);
    } else if (Report("status", shown.status()) == kExitUsage) {
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

absl::StatusOr<OfflineStatus> ReadOfflineStatus(const std::string& backing) {
  SALIUS_ASSIGN_OR_RETURN(const VolumeDir directory, VolumeDir::Open(backing, /*lock=*/false));
  SALIUS_ASSIGN_OR_RETURN(const StateFile state,
                          StateFile::Open(directory.salius_fd, kStateFileName));
  OfflineStatus status;
  status.backing = directory.path;
  status.config = directory.config;
  status.state = state.state();
  const absl::StatusOr<UniqueFd> lock = OpenAt(directory.salius_fd, kLockFileName, O_RDONLY);
  if (lock.ok()) status.in_use_by = LockHolder(lock->get());
  return status;
}

int RunStatus(absl::Span<const std::string> words) {
  StatusPlan plan;
  Options options = StatusOptions(plan);
  if (const absl::Status parsed = options.Parse(words, 0, 1); !parsed.ok()) {
    return Report("status", parsed);
  }
  if (options.help_wanted()) {
    std::printf("%s", options.Help().c_str());
    return kExitOk;
  }
  if (!options.places().empty()) plan.place = options.places()[0];
  if (!plan.place.empty() && !plan.replica.empty()) {
    return Report("status", absl::InvalidArgumentError("give a volume or --replica, not both"));
  }
  if (plan.watch) return Watch(plan);
  const absl::StatusOr<Shown> shown = Show(plan);
  if (!shown.ok()) return Report("status", shown.status());
  std::fputs(shown->text.c_str(), stdout);
  return shown->code;
}

}  // namespace salius::cli
