#include "client/run/child.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/direct/process/attach.h"
#include "common/file.h"

namespace salius::run {
namespace {

constexpr char kPreloadVariable[] = "LD_PRELOAD=";

// Returns the environment of the command.
std::vector<std::string> EnvironmentFor(const ChildOptions& options) {
  std::vector<std::string> variables;
  std::string preload = absl::StrCat(kPreloadVariable, options.library);
  const std::string socket = absl::StrCat(direct::kAttachVariable, "=");
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string variable = *at;
    if (absl::StartsWith(variable, socket)) continue;
    if (absl::StartsWith(variable, kPreloadVariable)) {
      absl::StrAppend(&preload, ":", variable.substr(sizeof(kPreloadVariable) - 1));
    } else {
      variables.push_back(variable);
    }
  }
  variables.push_back(std::move(preload));
  variables.push_back(absl::StrCat(socket, options.socket));
  return variables;
}

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Has these system calls answered ENOSYS from now on, here and in every program that follows.
// Only async-signal-safe calls. Returns 0 or an errno.
int RefuseUnseenWrites() {
  constexpr auto kAllow = static_cast<uint32_t>(SECCOMP_RET_ALLOW);
  constexpr auto kRefuse = static_cast<uint32_t>(SECCOMP_RET_ERRNO | ENOSYS);
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, kRefuse),
      BPF_STMT(BPF_RET | BPF_K, kAllow),
  };
  const sock_fprog program = {.len = static_cast<unsigned short>(std::size(filter)),
                              .filter = filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0 ? errno : 0;
}

// The child between fork(2) and execve(2). Only async-signal-safe calls. Does not return.
[[noreturn]] void Become(const char* file, char* const* arguments, char* const* variables,
                         int report) {
  for (const int signal : {SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGCHLD}) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  int error = RefuseUnseenWrites();
  if (error == 0) {
    ::execve(file, arguments, variables);
    error = errno;
  }
  static_cast<void>(!::write(report, &error, sizeof(error)));
  ::_exit(127);
}

}  // namespace

absl::StatusOr<pid_t> StartChild(const ChildOptions& options) {
  const std::vector<std::string> environment = EnvironmentFor(options);
  const std::vector<char*> variables = Pointers(environment);
  const std::vector<char*> arguments = Pointers(options.arguments);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "fork");
  if (child == 0) {
    Become(options.file.c_str(), arguments.data(), variables.data(), write_end.get());
  }
  write_end.Reset(-1);
  int error = 0;
  ssize_t got = 0;
  while ((got = ::read(read_end.get(), &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  if (got == 0) return child;  // the program runs: its execve(2) closed the pipe
  ::waitpid(child, nullptr, 0);
  const std::string what = absl::StrCat(options.file, ": cannot be executed");
  if (error == ENOENT) {
    return absl::NotFoundError(absl::StrCat(what, ": its interpreter is missing"));
  }
  return absl::PermissionDeniedError(ErrnoStatus(error, what).message());
}

}  // namespace salius::run
