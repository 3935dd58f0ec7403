#include "client/mount/remount.h"

#include <sys/mount.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/fuse/mount_table.h"
#include "client/mount/find_daemon.h"
#include "client/status/status_reader.h"
#include "common/check.h"
#include "common/file.h"
#include "storage/volume_config.h"

namespace salius {
namespace {

// Returns the kernel's present flags that also concern the daemon.
std::string FlagsNow(const std::string& mountpoint) {
  const absl::StatusOr<MountEntry> now = MountAt(mountpoint);
  std::vector<absl::string_view> flags;
  if (!now.ok()) return "";
  const std::string both = absl::StrCat(now->options, ",", now->super_options);
  for (const absl::string_view word : absl::StrSplit(both, ',')) {
    for (const absl::string_view known : {"ro", "noatime", "nodiratime", "sync", "dirsync"}) {
      if (word == known) flags.push_back(word);
    }
  }
  return absl::StrJoin(flags, ",");
}

absl::Status Ask(const std::string& socket, const std::string& options, bool check_only) {
  const absl::Status status = SendRemount(socket, options, check_only, kDaemonAnswerBound);
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
  return absl::UnavailableError(
      absl::StrCat("the daemon of the volume does not answer: ", status.message()));
}

}  // namespace

absl::Status RunRemount(const MountCommand& command) {
  SALIUS_ASSIGN_OR_RETURN(const std::string backing, BackingOf(command.mountpoint));
  if (backing != command.backing) {
    return absl::NotFoundError(absl::StrCat(command.mountpoint, " is the volume of ", backing,
                                            ", not of ", command.backing));
  }
  const std::string socket = SocketOf(command.mountpoint, VolumeDir::Open(backing, /*lock=*/false));
  if (socket.empty()) {
    return absl::UnavailableError(
        absl::StrCat("no daemon says that it serves ", command.mountpoint));
  }
  const std::string options = absl::StrJoin(command.option_lists, ",");
  SALIUS_RETURN_IF_ERROR(Ask(socket, options, /*check_only=*/true));
  if (command.action == MountCommand::Action::kFake) return absl::OkStatus();
  unsigned long flags = command.options.mount_flags | MS_REMOUNT;
  if (command.options.bind) flags |= MS_BIND;
  if (::mount(nullptr, command.mountpoint.c_str(), nullptr, flags, nullptr) != 0) {
    if (errno == EBUSY) {
      return absl::UnavailableError(absl::StrCat(
          command.mountpoint,
          " cannot become read-only while files are open for writing (fuser -vm shows whose)"));
    }
    return ErrnoStatus(errno, absl::StrCat("remount ", command.mountpoint));
  }
  // With "bind" the flags are of this one mount; the daemon's part stays unchanged.
  if (command.options.bind) {
    const auto status = ReadVolumeStatus(socket, kDaemonAnswerBound);
    if (status.ok() && status->mountpoint() != command.mountpoint) return absl::OkStatus();
  }
  return Ask(socket, FlagsNow(command.mountpoint), /*check_only=*/false);
}

}  // namespace salius
