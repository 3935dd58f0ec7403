#include "client/mount/launcher.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/check.h"
#include "common/log.h"
#include "common/runbook.h"

namespace salius {
namespace {

// The message in the pipe: one of these, then text for people.
constexpr char kReady = 'R';
constexpr char kUsage = 'U';
constexpr char kFailure = 'F';

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

std::string HowItEnded(int pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return absl::StrCat("the daemon died of signal ", WTERMSIG(status));
  return absl::StrCat("the daemon ended with code ", WEXITSTATUS(status), " without a word");
}

// Leaves terminal, session and directory.
absl::Status LeaveTerminal() {
  ::setsid();
  if (::chdir("/") != 0) return ErrnoStatus(errno, "chdir /");
  absl::StatusOr<UniqueFd> null = OpenAt(AT_FDCWD, "/dev/null", O_RDWR);
  if (!null.ok()) return null.status();
  ::dup2(null->get(), STDIN_FILENO);
  ::dup2(null->get(), STDOUT_FILENO);
  return absl::OkStatus();
}

// Prints text for people on stderr, each line after the program's name.
void Print(const std::string& program, const std::string& text, LogLevel level) {
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    std::fprintf(stderr, "%s%s: %s\n", std::string(LinePrefix(level)).c_str(), program.c_str(),
                 std::string(line).c_str());
  }
}

}  // namespace

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitOk;
  return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ? kExitUsage
                                                                          : kExitFailure;
}

Launcher::Launcher(std::string program, bool foreground)
    : program_(std::move(program)), foreground_(foreground) {}

std::optional<int> Launcher::Start() {
  if (foreground_) return std::nullopt;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return Fail(ErrnoStatus(errno, "pipe"));
  }
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return Fail(ErrnoStatus(errno, "fork"));
  if (pid == 0) {
    to_parent_ = std::move(write_end);
    return std::nullopt;
  }
  write_end.Reset();
  return AwaitDaemon(pid, read_end.get());
}

int Launcher::AwaitDaemon(int pid, int read_fd) {
  const std::string word = ReadAll(read_fd);
  const std::string text = word.empty() ? HowItEnded(pid) : word.substr(1);
  const bool ready = !word.empty() && word[0] == kReady;
  Print(program_, text, ready ? LogLevel::kWarn : LogLevel::kError);
  if (word.empty()) return kExitFailure;
  return word[0] == kReady ? kExitOk : word[0] == kUsage ? kExitUsage : kExitFailure;
}

void Launcher::Send(char kind, const std::string& text) {
  reported_ = true;
  if (!to_parent_.valid()) {
    Print(program_, text, kind == kReady ? LogLevel::kWarn : LogLevel::kError);
    return;
  }
  const std::string word = kind + text;
  size_t sent = 0;
  while (sent < word.size()) {
    const ssize_t n = ::write(to_parent_.get(), word.data() + sent, word.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;  // the parent was killed: there is no reader
    sent += static_cast<size_t>(n);
  }
  to_parent_.Reset();
}

absl::Status Launcher::TakeLog(const std::string& given_log, const std::string& default_log) {
  if (foreground_ || log_taken_ || (given_log.empty() && StderrIsJournal())) {
    return absl::OkStatus();
  }
  const std::string& log_file = given_log.empty() ? default_log : given_log;
  const std::string directory = std::filesystem::path(log_file).parent_path();
  // Root's directory, and no link: otherwise a user who can write there chooses the file to which
  // root appends.
  SALIUS_RETURN_IF_ERROR(given_log.empty() ? MakeOwnDirs(directory) : MakeDirs(directory));
  absl::StatusOr<UniqueFd> log = OpenAt(
      AT_FDCWD, log_file,
      O_WRONLY | O_CREAT | O_APPEND | (given_log.empty() ? O_NOFOLLOW | O_NONBLOCK : 0), 0640);
  if (!log.ok()) return log.status();
  if (struct stat st; given_log.empty() && (::fstat(log->get(), &st) != 0 || !S_ISREG(st.st_mode) ||
                                            st.st_uid != ::geteuid() || st.st_nlink != 1)) {
    return absl::FailedPreconditionError(absl::StrCat(
        log_file, " is no file of ours alone; remove it, or give the option log=FILE; ",
        SeeRunbook("log-file-refused")));
  }
  ::dup2(log->get(), STDERR_FILENO);
  log_taken_ = true;
  return absl::OkStatus();
}

absl::Status Launcher::Ready(const std::string& notice, const std::string& given_log,
                             const std::string& default_log) {
  SALIUS_RETURN_IF_ERROR(TakeLog(given_log, default_log));
  if (!foreground_) SALIUS_RETURN_IF_ERROR(LeaveTerminal());
  Send(kReady, notice);
  return absl::OkStatus();
}

int Launcher::Fail(const absl::Status& status) {
  const int code = ExitCodeOf(status);
  Send(code == kExitUsage ? kUsage : kFailure,
       std::string(status.message().data(), status.message().size()));
  return code;
}

}  // namespace salius
