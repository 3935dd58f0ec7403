#include "client/volume/backing_dirs.h"

#include <errno.h>
#include <fcntl.h>

#include <utility>
#include <vector>

#include "common/check.h"
#include "common/file_system.h"
#include "common/log.h"
#include "storage/fs_calls.h"

namespace salius {

absl::StatusOr<BackingDirs> BackingDirs::Open(VolumeDir volume) {
  BackingDirs dirs(std::move(volume));
  const int salius_fd = dirs.volume_.salius_fd;
  SALIUS_ASSIGN_OR_RETURN(dirs.sync_, OpenAt(dirs.root_fd(), ".", O_RDONLY | O_DIRECTORY));
  SALIUS_ASSIGN_OR_RETURN(dirs.tmp_, OpenAt(salius_fd, kTmpDirName, O_RDONLY | O_DIRECTORY));
  SALIUS_ASSIGN_OR_RETURN(dirs.open_, OpenAt(salius_fd, kOpenDirName, O_RDONLY | O_DIRECTORY));
  for (const int leftovers : {dirs.tmp_fd(), dirs.open_fd()}) {
    SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs::ListDir(leftovers));
    for (const std::string& name : names) RemoveLeftover(leftovers, name);
  }
  return dirs;
}

void BackingDirs::RemoveLeftover(int dirfd, const std::string& name) {
  absl::Status removed = fs::Unlink(dirfd, name, 0);
  if (StatusErrno(removed) == EISDIR) removed = fs::Unlink(dirfd, name, AT_REMOVEDIR);
  // A directory with something in it may hold someone's data.
  if (!removed.ok() && StatusErrno(removed) != ENOENT) {
    SLOG_WARN("left in .salius: {}", removed.ToString());
  }
}

absl::Status BackingDirs::Sync() const {
  SALIUS_RETURN_IF_ERROR(SyncVolume(sync_.get(), volume_.lock_fd));
  return volume_.CheckSynced();
}

void BackingDirs::OpenClock() {
  absl::StatusOr<UniqueFd> clock = OpenAt(tmp_fd(), ".", O_TMPFILE | O_RDWR, 0600);
  if (clock.ok()) clock_ = *std::move(clock);
}

timespec BackingDirs::Now() const { return fs::FileTimeNow(clock_.get()); }

}  // namespace salius
