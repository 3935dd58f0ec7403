#include "client/volume/backing_dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <utility>
#include <vector>

#include "common/check.h"
#include "common/file.h"
#include "common/log.h"
#include "storage/volume_config.h"

namespace salius {

absl::StatusOr<BackingDirs> BackingDirs::Open(Backing& backing, const VolumeFds& fds) {
  constexpr int kDir = O_RDONLY | O_DIRECTORY;
  BackingDirs dirs(backing, fds);
  SALIUS_ASSIGN_OR_RETURN(dirs.sync_, backing.OpenAt(fds.root, ".", kDir));
  SALIUS_ASSIGN_OR_RETURN(dirs.tmp_, backing.OpenAt(fds.salius, kTmpDirName, kDir));
  SALIUS_ASSIGN_OR_RETURN(dirs.open_, backing.OpenAt(fds.salius, kOpenDirName, kDir));
  for (const int leftovers : {dirs.tmp_fd(), dirs.open_fd()}) {
    SALIUS_ASSIGN_OR_RETURN(const std::vector<std::string> names, backing.ListDir(leftovers));
    for (const std::string& name : names) dirs.RemoveLeftover(leftovers, name);
  }
  return dirs;
}

void BackingDirs::RemoveLeftover(int dirfd, const std::string& name) const {
  absl::Status removed = backing_->Unlink(dirfd, name, 0);
  if (StatusErrno(removed) == EISDIR) removed = backing_->Unlink(dirfd, name, AT_REMOVEDIR);
  // A directory with something in it may hold someone's data.
  if (!removed.ok() && StatusErrno(removed) != ENOENT) {
    SLOG_WARN("left in .salius: {}", removed.ToString());
  }
}

absl::Status BackingDirs::Sync() const {
  SALIUS_RETURN_IF_ERROR(SyncVolume(*backing_, sync_.get(), fds_.file));
  return CheckSynced();
}

absl::Status BackingDirs::CheckSynced() const {
  return fds_.watch == nullptr ? absl::OkStatus() : fds_.watch->Check();
}

bool BackingDirs::KeepsNanoseconds() const {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = 1, .tv_nsec = 1}};
  if (!backing_->SetTimes(tmp_fd(), times).ok()) return false;
  const absl::StatusOr<struct stat> st = backing_->Stat(tmp_fd());
  return st.ok() && st->st_mtim.tv_sec == 1 && st->st_mtim.tv_nsec == 1;
}

void BackingDirs::OpenClock() {
  absl::StatusOr<BackingFd> clock = backing_->OpenTmpFile(tmp_fd());
  if (clock.ok()) clock_ = *std::move(clock);
}

timespec BackingDirs::Now() const { return backing_->FileTimeNow(clock_.get()); }

}  // namespace salius
