#include "client/mount/umount_helper.h"

#include <poll.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/fuse/mount_calls.h"
#include "client/fuse/mount_table.h"
#include "client/mount/find_daemon.h"
#include "client/status/status_reader.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/file.h"
#include "log/state_file.h"
#include "storage/volume_config.h"

namespace salius {
namespace {

// Longer than the daemon's own bound of a drain.
constexpr std::chrono::minutes kGoneBound{16};
// A daemon learns of its last umount at once. If it still serves after this time, it has a mount
// that cannot be seen from here.
constexpr std::chrono::seconds kServesOnBound{10};
constexpr int kLookMs = 500;

struct UmountCommand {
  std::string mountpoint;
  int flags = 0;
};

absl::StatusOr<UmountCommand> Parse(const std::vector<std::string>& words) {
  UmountCommand command;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-t" || word == "-N") {
      ++i;
    } else if (absl::StartsWith(word, "-t")) {
      continue;
    } else if (absl::StartsWith(word, "-")) {
      for (const char letter : word.substr(1)) {
        if (letter == 'l') command.flags |= MNT_DETACH;
        if (letter == 'f') command.flags |= MNT_FORCE;
      }
    } else if (command.mountpoint.empty()) {
      command.mountpoint = word;
    } else {
      return absl::InvalidArgumentError("give one mount point");
    }
  }
  if (command.mountpoint.empty()) return absl::InvalidArgumentError("give a mount point");
  return command;
}

// Returns whether the process is in another mount namespace than this one; true also when that
// cannot be seen.
bool IsInAnotherNamespace(pid_t pid) {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/ns/mnt", error);
  if (error) return true;
  const std::filesystem::path its =
      std::filesystem::read_symlink(absl::StrCat("/proc/", pid, "/ns/mnt"), error);
  return error || own != its;
}

// Unmounts in this namespace. umount(8) removes its note from /run/mount/utab, which other
// namespaces share: where the daemon is in another one, its own mount may need the note.
absl::Status UnmountHere(const UmountCommand& command, const DaemonProcess& daemon) {
  if (!daemon.pidfd.valid() || !IsInAnotherNamespace(daemon.pid))
    return UnmountPath(command.mountpoint, command.flags);
  if (::umount2(command.mountpoint.c_str(), command.flags | UMOUNT_NOFOLLOW) == 0)
    return absl::OkStatus();
  return ErrnoStatus(errno, "umount " + command.mountpoint);
}

// Returns whether this is a bind mount: the volume's daemon mounted it elsewhere.
bool IsBindMount(const std::string& mountpoint, const std::string& socket) {
  const auto status = ReadVolumeStatus(socket, kDaemonAnswerBound);
  return status.ok() && status->mountpoint() != mountpoint;
}

// Waits until the daemon that answers at the socket has ended.
absl::Status AwaitGone(const UniqueFd& daemon, const std::string& socket,
                       const std::string& backing) {
  if (!daemon.valid()) return absl::OkStatus();
  Clock& clock = SystemClock();
  const Deadline bound = Deadline::After(clock, kGoneBound);
  Deadline serves_on = Deadline::After(clock, kServesOnBound);
  while (!bound.Expired(clock)) {
    pollfd wait{.fd = daemon.get(), .events = POLLIN, .revents = 0};
    if (::poll(&wait, 1, kLookMs) > 0) return absl::OkStatus();
    const auto status = ReadVolumeStatus(socket, kDaemonAnswerBound);
    if (!status.ok() || !status->serving()) serves_on = Deadline::After(clock, kServesOnBound);
    if (!serves_on.Expired(clock)) continue;
    return absl::UnavailableError(
        absl::StrCat("unmounted, but ", backing,
                     " is still mounted where it is not seen from here, in another mount namespace "
                     "(of a container or a service), and is drained when it no longer is"));
  }
  return absl::DeadlineExceededError("unmounted, but the daemon still drains the volume");
}

// Returns OK when nothing depends on a replica any more.
absl::Status CheckClean(const std::string& backing, const absl::StatusOr<VolumeDir>& dir) {
  absl::Status why = dir.status();
  if (why.ok()) {
    const absl::StatusOr<StateFile> state =
        StateFile::Open(*dir->backing, dir->salius_fd, kStateFileName);
    if (state.ok() && !state->state().open) return absl::OkStatus();
    why = state.ok() ? absl::DataLossError("the volume is still open") : state.status();
  }
  return absl::DataLossError(
      absl::StrCat("unmounted, but ", backing, " could not be drained: ", why.message(),
                   "; see its log. Its next mount, or salius-recover, will recover it"));
}

}  // namespace

absl::Status RunUmount(const std::vector<std::string>& words) {
  SALIUS_ASSIGN_OR_RETURN(const UmountCommand command, Parse(words));
  SALIUS_ASSIGN_OR_RETURN(const std::string backing, BackingOf(command.mountpoint));
  // The mount must end whatever the disk does. The daemon is found first: later it may have ended.
  const absl::StatusOr<VolumeDir> dir = VolumeDir::Open(backing, /*lock=*/false);
  const std::string socket = SocketOf(command.mountpoint, dir);
  const DaemonProcess daemon = ListenerAt(socket);
  const absl::StatusOr<MountEntry> mounted = MountAt(command.mountpoint);
  const bool bind = mounted.ok() && dir.ok() && IsBindMount(command.mountpoint, socket);
  SALIUS_RETURN_IF_ERROR(UnmountHere(command, daemon));
  if ((command.flags & MNT_DETACH) != 0) return absl::OkStatus();
  if (mounted.ok()) {
    const std::vector<std::string> others = OtherMountsOf(mounted->device, "");
    if (!others.empty() && bind) return absl::OkStatus();
    if (!others.empty()) {
      return absl::UnavailableError(absl::StrCat(
          "unmounted, but ", backing, " is still mounted at ", absl::StrJoin(others, ", "),
          ", and is drained when it no longer is: unmount that, too"));
    }
  }
  SALIUS_RETURN_IF_ERROR(AwaitGone(daemon.pidfd, socket, backing));
  return CheckClean(backing, dir);
}

}  // namespace salius
