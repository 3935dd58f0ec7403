#include "client/fuse/mount_calls.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "client/fuse/mount_table.h"
#include "common/file.h"
#include "common/log.h"

namespace salius {
namespace {

// Runs a program without output to the user; returns whether it ended with 0.
bool RunQuietly(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY, 0);
  }
  // The daemon blocks signals; the program must not inherit that.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return false;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

bool AddUtabEntry(const std::string& source, const std::string& mountpoint) {
  if (RunQuietly({"/bin/mount", "--no-canonicalize", "-i", "-f", "-t", kMountType, "-o",
                  "uhelper=salius", source, mountpoint})) {
    return true;
  }
  SLOG_WARN(
      "mount(8) could not enter the umount helper in utab: umount of {} will return before the "
      "volume is drained",
      mountpoint);
  return false;
}

void RemoveUtabEntry(const std::string& mountpoint) {
  // It fails where there is no entry.
  static_cast<void>(RunQuietly({"/bin/umount", "--no-canonicalize", "-i", "--fake", mountpoint}));
}

absl::Status UnmountPath(const std::string& mountpoint, int flags) {
  std::vector<std::string> words{"/bin/umount", "-i", "--no-canonicalize"};
  if ((flags & MNT_DETACH) != 0) words.push_back("-l");
  if ((flags & MNT_FORCE) != 0) words.push_back("-f");
  words.push_back(mountpoint);
  if (RunQuietly(words)) return absl::OkStatus();
  // Tries again without umount(8): to learn the reason, or because umount(8) is missing.
  if (::umount2(mountpoint.c_str(), flags | UMOUNT_NOFOLLOW) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "umount " + mountpoint);
}

void ClearDeadMounts(const std::string& source, const std::string& mountpoint) {
  while (IsSaliusMount(mountpoint, source)) {
    // The kernel would answer for a dead daemon from its cache.
    struct statx st;
    if (::statx(AT_FDCWD, mountpoint.c_str(), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &st) == 0 ||
        errno != ENOTCONN) {
      return;
    }
    const absl::Status status = UnmountPath(mountpoint, MNT_DETACH);
    if (status.ok()) continue;
    SLOG_WARN("{}", status.ToString());
    return;
  }
}

}  // namespace salius
