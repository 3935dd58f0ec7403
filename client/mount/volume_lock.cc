#include "client/mount/volume_lock.h"

#include <chrono>
#include <thread>

#include "client/fuse/mount_table.h"
#include "client/status/socket_path.h"
#include "client/status/status_reader.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/log.h"
#include "common/strings.h"

namespace salius {
namespace {

// A predecessor that was unmounted a moment ago may still drain.
constexpr std::chrono::seconds kPredecessorBound{60};
constexpr std::chrono::milliseconds kLockInterval{50};
// The time within which a mounted volume must answer.
constexpr std::chrono::seconds kAnswerBound{2};

// Returns whether the holder of the volume's lock serves the volume, and so keeps the lock.
//
//   the holder                            | serves
//   --------------------------------------+-------------------------------------------------------
//   answers                               | as it reports; a drain is no
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

}  // namespace

absl::StatusOr<VolumeDir> LockVolume(const std::string& backing) {
  const absl::StatusOr<VolumeDir> unlocked = VolumeDir::Open(backing, /*lock=*/false);
  if (unlocked.ok()) {
    SALIUS_RETURN_IF_ERROR(CheckVolumeKind(unlocked->config, unlocked->path, VolumeKind::kMount));
  }
  const Deadline bound = Deadline::After(SystemClock(), kPredecessorBound);
  for (bool logged = false;; logged = true) {
    absl::StatusOr<VolumeDir> dir = VolumeDir::Open(backing, /*lock=*/true);
    if (!absl::IsUnavailable(dir.status()) || bound.Expired(SystemClock()) ||
        HolderServes(backing, logged)) {
      return dir;
    }
    if (!logged) SLOG_INFO("waiting: {}", Sv(dir.status().message()));
    std::this_thread::sleep_for(kLockInterval);
  }
}

}  // namespace salius
