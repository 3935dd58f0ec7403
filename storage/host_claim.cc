#include "storage/host_claim.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/file.h"
#include "common/log.h"
#include "common/runbook.h"
#include "common/strings.h"
#include "storage/fs_calls.h"

namespace salius {
namespace {

// Bound for the release: a process that is killed releases its locks one after the other.
constexpr std::chrono::seconds kReleaseBound{2};
constexpr std::chrono::milliseconds kPollInterval{10};
constexpr size_t kMaxNoteBytes = 8192;

struct Holder {
  int64_t pid = 0;
  uint64_t device = 0;
  uint64_t inode = 0;
  std::string path;
};

// Returns the holder's note; pid 0 when it has not written one yet.
Holder ReadNote(int fd) {
  std::string text(kMaxNoteBytes, '\0');
  const absl::StatusOr<size_t> size = PreadFull(fd, text.data(), text.size(), 0);
  text.resize(size.value_or(0));
  Holder holder;
  std::istringstream words(text);
  words >> holder.pid >> holder.device >> holder.inode;
  if (!words) return {};
  words.ignore(1);
  std::getline(words, holder.path, '\0');
  if (!holder.path.empty() && holder.path.back() == '\n') holder.path.pop_back();
  return holder;
}

absl::Status WriteNote(int fd, const struct stat& root, const std::string& path) {
  const std::string text = absl::StrFormat("%d %d %d %s\n", getpid(), root.st_dev, root.st_ino, path);
  SALIUS_RETURN_IF_ERROR(fs::Truncate(fd, 0));
  return PwriteFull(fd, AsBytes(text), 0);
}

// Opens the file of the claim. NOT_FOUND: no process has ever claimed it, and no claim can be noted
// here.
absl::StatusOr<UniqueFd> OpenClaim(const std::string& run_directory, const std::string& path) {
  const absl::Status made = MakeOwnDirs(run_directory);
  // Below /tmp another user may have made the directory, with names that lead to files of this one.
  if (geteuid() != 0 && absl::IsPermissionDenied(made)) {
    return absl::NotFoundError(made.message());
  }
  absl::StatusOr<UniqueFd> fd = OpenAt(AT_FDCWD, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  if (fd.ok()) return fd;
  // flock(2) needs no right to write.
  absl::StatusOr<UniqueFd> read_only = OpenAt(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW);
  if (read_only.ok()) return read_only;
  return absl::NotFoundError(made.ok() ? fd.status().message() : made.message());
}

absl::Status Refusal(const VolumeDir& dir, const Holder& holder) {
  const std::string other =
      holder.pid == 0 ? "another process of this host"
                      : absl::StrCat("process ", holder.pid, " of this host uses from ",
                                     Printable(holder.path, NewLines::kReplace));
  return absl::UnavailableError(
      absl::StrCat(dir.path, " has the UUID of a volume (", dir.config.volume.ToString(), ") that ",
                   other, holder.pid == 0 ? " uses from another directory" : "",
                   ": one directory is a copy of the other, and no replica was asked for this one. "
                   "\"salius init --copy\" "
                   "makes the copy a volume of its own; to use the copy in place of the other, "
                   "unmount that first; ",
                   SeeRunbook("copy-of-a-volume")));
}

}  // namespace

std::string ClaimDirectory() {
  const uid_t user = geteuid();
  if (user == 0) return kClaimDirectory;
  const std::string session = absl::StrCat("/run/user/", user);
  if (access(session.c_str(), W_OK) == 0) return absl::StrCat(session, "/salius");
  return absl::StrCat("/tmp/salius-", user);
}

absl::Status ClaimOnThisHost(VolumeDir& dir, const std::string& run_directory) {
  SALIUS_CHECK(dir.lock_fd >= 0, "the volume's lock comes first");
  SALIUS_ASSIGN_OR_RETURN(const struct stat root, dir.backing->StatAt(dir.root_fd, ""));
  const std::string path = absl::StrCat(run_directory, "/", dir.config.volume.ToString(), ".lock");
  absl::StatusOr<UniqueFd> fd = OpenClaim(run_directory, path);
  if (absl::IsNotFound(fd.status())) {
    SLOG_WARN("{}: that this host uses {} cannot be noted for those who would use a copy of it",
              Sv(fd.status().message()), dir.path);
    return absl::OkStatus();
  }
  SALIUS_RETURN_IF_ERROR(fd.status());
  const Deadline bound = Deadline::After(SystemClock(), kReleaseBound);
  for (;;) {
    const absl::Status locked = LockExclusive(fd->get(), path);
    if (locked.ok()) break;
    if (!absl::IsUnavailable(locked)) return locked;
    const Holder holder = ReadNote(fd->get());
    // We hold this directory's lock: its last user is about to end.
    const bool ending = holder.device == root.st_dev && holder.inode == root.st_ino;
    if ((holder.pid != 0 && !ending) || bound.Expired(SystemClock())) {
      return Refusal(dir, holder);
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  const absl::Status noted = WriteNote(fd->get(), root, dir.path);
  if (!noted.ok()) SLOG_WARN("{}: {}", path, noted.ToString());
  dir.claim_fd = fd->Release();
  return absl::OkStatus();
}

}  // namespace salius
