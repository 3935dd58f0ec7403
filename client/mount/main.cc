// salius-mount, and by other names the helpers of mount(8) and umount(8):
//
//   salius-mount          BACKING MOUNTPOINT [-o OPTIONS] [-f]
//   mount.salius          called by `mount -t salius` and for fstab
//   mount.fuse.salius     the same by the type that the kernel shows, and for `mount -o remount`
//   umount.fuse.salius    called by `umount`
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/fuse/mount_table.h"
#include "client/mount/launcher.h"
#include "client/mount/mount_command.h"
#include "client/mount/mount_daemon.h"
#include "client/mount/remount.h"
#include "client/mount/umount_helper.h"
#include "common/check.h"
#include "common/daemon.h"
#include "common/file.h"
#include "common/log.h"
#include "common/version.h"

namespace salius {
namespace {

constexpr char kProgram[] = "salius-mount";

int Report(const std::string& program, const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s%s: %s\n", std::string(LinePrefix(LogLevel::kError)).c_str(),
                 program.c_str(),
                 std::string(status.message().data(), status.message().size()).c_str());
  }
  return ExitCodeOf(status);
}

// Returns whether `path` is `dir` or lies in it; both are absolute.
bool LiesIn(const std::string& path, const std::string& dir) {
  return path == dir || absl::StartsWith(path, dir == "/" ? dir : dir + "/");
}

// Refuses a log that lies in the daemon's own mount, also through links: the daemon would wait for
// itself.
absl::Status CheckLog(const MountCommand& command) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;
  if (command.options.log_file.empty() && StderrIsJournal()) return absl::OkStatus();
  const std::string named =
      command.options.log_file.empty() ? absl::StrCat(kLogDir, "/any") : command.options.log_file;
  fs::path path = named;
  for (int links = 0; !path.empty() && links <= kMostLinks; ++links) {
    std::error_code error;
    const fs::path parent = fs::weakly_canonical(path.parent_path(), error);
    if (error) return ErrnoStatus(error.value(), path.string());
    const fs::path resolved = parent / path.filename();
    for (const fs::path& place : {path.lexically_normal(), resolved}) {
      if (LiesIn(place, command.mountpoint)) {
        return absl::InvalidArgumentError(
            absl::StrCat("log: ", named, " would lie in the mount itself, ", command.mountpoint,
                         "; the log must lie outside of it (option log=FILE)"));
      }
    }
    const fs::path target = fs::read_symlink(resolved, error);
    path = error ? fs::path() : parent / target;  // an absolute target stands alone
  }
  return absl::OkStatus();
}

// Makes a path absolute and free of links: the daemon leaves this directory, and the mount table
// shows such paths.
absl::Status Canonical(std::string* path) {
  std::error_code error;
  const std::filesystem::path canonical = std::filesystem::canonical(*path, error);
  if (error) return ErrnoStatus(error.value(), *path);
  *path = canonical;
  return absl::OkStatus();
}

// Returns whether the mount point is a dead mount of this volume. A killed daemon leaves one. It
// stays until the next mount, so that until then no program writes below it.
bool IsOurDeadMount(const MountCommand& command, const std::error_code& error) {
  return error.value() == ENOTCONN && command.action == MountCommand::Action::kMount &&
         IsSaliusMount(command.mountpoint, command.backing);
}

absl::Status CheckPlaces(MountCommand* command) {
  SALIUS_RETURN_IF_ERROR(Canonical(&command->backing));
  SALIUS_RETURN_IF_ERROR(Canonical(&command->mountpoint));
  std::error_code error;
  if (!std::filesystem::is_directory(command->mountpoint, error) &&
      !IsOurDeadMount(*command, error)) {
    if (error) return ErrnoStatus(error.value(), command->mountpoint);
    return absl::InvalidArgumentError(absl::StrCat(command->mountpoint, " is not a directory"));
  }
  // Recovery and status must be able to reach the backing directory beside the mount.
  if (command->mountpoint == command->backing ||
      absl::StartsWith(command->mountpoint, command->backing + "/")) {
    return absl::InvalidArgumentError(absl::StrCat(
        command->mountpoint, " lies in the backing directory; mount the volume outside of it"));
  }
  if (absl::StartsWith(command->backing, command->mountpoint + "/")) {
    return absl::InvalidArgumentError(absl::StrCat(
        command->mountpoint, " would cover the backing directory; mount the volume beside it"));
  }
  return command->foreground ? absl::OkStatus() : CheckLog(*command);
}

// Executes "salius-mount BACKING MOUNTPOINT -o OPTIONS", so that ps(1) shows the daemon by its
// name. Returns if that fails.
void BecomeSaliusMount(const MountCommand& command) {
  std::vector<std::string> words{"salius-mount", command.backing, command.mountpoint};
  for (const std::string& list : command.option_lists) words.insert(words.end(), {"-o", list});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) ::execv(self.c_str(), argv.data());
}

int RunMount(const std::string& program, absl::StatusOr<MountCommand> command) {
  if (!command.ok()) return Report(program, command.status());
  if (command->answer.has_value()) {
    std::fputs(command->answer->c_str(), stdout);
    return kExitOk;
  }
  if (command->options.remount) {
    absl::Status canonical = Canonical(&command->backing);
    if (canonical.ok()) canonical = Canonical(&command->mountpoint);
    return Report(program, canonical.ok() ? RunRemount(*command) : canonical);
  }
  absl::Status status = CheckPlaces(&*command);
  if (status.ok()) status = InitLogging("salius-mount", command->options.log_level);
  if (!status.ok()) return Report(program, status);
  if (command->action == MountCommand::Action::kFake) return kExitOk;
  if (command->verbose) {
    std::printf("%s: %s on %s\n", program.c_str(), command->backing.c_str(),
                command->mountpoint.c_str());
    std::fflush(stdout);
  }
  if (program != kProgram) BecomeSaliusMount(*command);
  static_cast<void>(::prctl(PR_SET_NAME, kProgram, 0, 0, 0));
  Launcher launcher(program, command->foreground);
  if (const std::optional<int> code = launcher.Start(); code.has_value()) return *code;
  status = Serve(*command, launcher);
  int code = kExitOk;
  if (!status.ok() && launcher.reported()) {
    SLOG_ERROR("{}", status.ToString());
    code = kExitFailure;
  } else if (!status.ok()) {
    code = launcher.Fail(status);
  }
  if (!FlushLog()) ::_exit(code);
  return code;
}

int Main(int argc, char** argv) {
  UsePlainMutexes();
  const std::string program = std::filesystem::path(argv[0]).filename();
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (absl::StartsWith(program, "umount.") && words == std::vector<std::string>{"--version"}) {
    std::printf("%s %s\n", program.c_str(), kSaliusVersion);
    return kExitOk;
  }
  if (absl::StartsWith(program, "umount.")) return Report(program, RunUmount(words));
  if (absl::StartsWith(program, "mount.")) return RunMount(program, ParseMountHelper(words));
  return RunMount(kProgram, ParseSaliusMount(words));
}

}  // namespace
}  // namespace salius

int main(int argc, char** argv) { return salius::Main(argc, argv); }
