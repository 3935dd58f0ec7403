#include "client/run/child.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/direct/process/attach.h"
#include "client/gate/call_page.h"
#include "client/gate/filter.h"
#include "client/gate/gate.h"
#include "client/gate/mount_gates.h"
#include "client/run/program.h"
#include "common/check.h"
#include "common/file.h"

namespace salius::run {
namespace {

constexpr char kPreloadVariable[] = "LD_PRELOAD=";

// Returns the environment of the command.
std::vector<std::string> EnvironmentFor(const ChildOptions& options) {
  std::vector<std::string> variables;
  std::string preload = absl::StrCat(kPreloadVariable, options.library);
  const auto named = [](const char* name) { return absl::StrCat(name, "="); };
  // Those of another salius-run are not for this command.
  const std::string own[] = {named(direct::kAttachVariable), named(gate::kGatesVariable),
                             named(gate::kHeldVariable)};
  const std::string values[] = {options.socket, options.gates, options.held};
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string variable = *at;
    if (absl::c_any_of(own, [&](const std::string& name) {
          return absl::StartsWith(variable, name);
        })) {
      continue;
    }
    if (absl::StartsWith(variable, kPreloadVariable)) {
      absl::StrAppend(&preload, ":", variable.substr(sizeof(kPreloadVariable) - 1));
    } else {
      variables.push_back(variable);
    }
  }
  variables.push_back(std::move(preload));
  for (size_t i = 0; i < std::size(own); ++i) {
    if (!values[i].empty()) variables.push_back(own[i] + values[i]);
  }
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

// The message of a child that cannot become the program.
struct Report {
  enum Step : int { kExecute, kPage, kFilter, kHandOver };
  int step = kExecute;
  int error = 0;
};

// Installs the gate's filter, and sends its listener over the socket `to`. Only async-signal-safe
// calls. From the filter on, an output of this process that is not made through the page waits for
// the supervisor.
Report Gate(const sock_fprog& filter, int to) {
  if (const int error = gate::MapCallPage(); error != 0) return {Report::kPage, error};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return {Report::kFilter, errno};
  const auto install = [&](unsigned long flags) {
    return static_cast<int>(
        ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter));
  };
  // A call that the supervisor has received is then interrupted by fatal signals only.
  int listener =
      install(SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
  if (listener < 0 && errno == EINVAL) listener = install(SECCOMP_FILTER_FLAG_NEW_LISTENER);
  if (listener < 0) return {Report::kFilter, errno};
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(head), &listener, sizeof(int));
  const long sent = salius_gate_call(SYS_sendmsg, to, reinterpret_cast<long>(&message),
                                     MSG_NOSIGNAL, 0, 0, 0);
  if (sent < 0) return {Report::kHandOver, static_cast<int>(-sent)};
  return {};
}

// The child between fork(2) and execve(2). Only async-signal-safe calls. Does not return.
// `filter`: of the gate, or null. `report`: a socket.
[[noreturn]] void Become(const char* file, char* const* arguments, char* const* variables,
                         const sock_fprog* filter, int report) {
  for (const int signal : {SIGPIPE, SIGTERM, SIGINT, SIGHUP, SIGCHLD}) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  Report said;
  if (filter != nullptr) {
    said = Gate(*filter, report);
  } else {
    said.error = RefuseUnseenWrites();
  }
  if (said.error == 0) {
    ::execve(file, arguments, variables);
    said.error = errno;
  }
  salius_gate_call(SYS_write, report, reinterpret_cast<long>(&said), sizeof(said), 0, 0, 0);
  salius_gate_call(SYS_exit_group, 127, 0, 0, 0, 0, 0);
  __builtin_unreachable();
}

// Receives the filter's listener. Returns an invalid descriptor when the child has failed before.
UniqueFd ReceiveListener(int from) {
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  pollfd ready = {from, POLLIN, 0};
  while (::poll(&ready, 1, -1) < 0 && errno == EINTR) {
  }
  // A report has more than a byte. It stays in the socket for the caller.
  Report said;
  if (::recv(from, &said, sizeof(said), MSG_PEEK) != 1) return UniqueFd();
  if (::recvmsg(from, &message, MSG_CMSG_CLOEXEC) != 1) return UniqueFd();
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (head == nullptr || head->cmsg_type != SCM_RIGHTS) return UniqueFd();
  int listener = -1;
  std::memcpy(&listener, CMSG_DATA(head), sizeof(int));
  return UniqueFd(listener);
}

// Returns why the command did not start.
absl::Status Explained(const Report& said, const std::string& file) {
  const std::string system = absl::StrCat(" (", std::strerror(said.error), ")");
  const std::string gated = "outputs cannot be gated here: ";
  switch (said.step) {
    case Report::kPage:
      return absl::FailedPreconditionError(
          absl::StrCat(gated, "executable memory is forbidden", system));
    case Report::kFilter:
      if (said.error == EBUSY) {
        return absl::FailedPreconditionError(
            absl::StrCat(gated, "another program already supervises the system calls here, such as "
                         "a container runtime or another salius-run", system));
      }
      return absl::FailedPreconditionError(absl::StrCat(
          gated, "seccomp(2) with a listener is refused; it needs Linux 5.5, and a container that "
          "allows it", system));
    case Report::kHandOver:
      return absl::FailedPreconditionError(absl::StrCat(gated, "sendmsg(2) failed", system));
    default:
      break;
  }
  const std::string what = absl::StrCat(file, ": cannot be executed");
  if (said.error == ENOENT) {
    return absl::NotFoundError(absl::StrCat(what, ": its interpreter is missing"));
  }
  return absl::PermissionDeniedError(ErrnoStatus(said.error, what).message());
}

}  // namespace

absl::StatusOr<ChildOptions> PrepareChild(const std::vector<std::string>& command,
                                          Programs programs) {
  ChildOptions options;
  const char* const path = std::getenv("PATH");
  SALIUS_ASSIGN_OR_RETURN(
      options.file, FindProgram(command[0], path == nullptr ? "/usr/bin:/bin" : path, programs));
  absl::StatusOr<std::string> library = FindLibrary();
  if (!library.ok()) return absl::FailedPreconditionError(library.status().message());
  options.library = *std::move(library);
  options.arguments = command;
  return options;
}

absl::StatusOr<pid_t> StartChild(const ChildOptions& options) {
  const std::vector<std::string> environment = EnvironmentFor(options);
  const std::vector<char*> variables = Pointers(environment);
  const std::vector<char*> arguments = Pointers(options.arguments);
  const bool gated = options.supervise != nullptr;
  std::vector<sock_filter> code;
  if (gated) code = gate::GateFilter();
  const sock_fprog filter = {.len = static_cast<unsigned short>(code.size()),
                             .filter = code.data()};
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoStatus(errno, "socketpair");
  }
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return ErrnoStatus(errno, "fork");
  if (child == 0) {
    Become(options.file.c_str(), arguments.data(), variables.data(), gated ? &filter : nullptr,
           write_end.get());
  }
  write_end.Reset(-1);
  if (gated) {
    // The execve(2) of the child is the first call that is supervised.
    UniqueFd listener = ReceiveListener(read_end.get());
    if (listener.valid()) options.supervise(std::move(listener));
  }
  Report said;
  ssize_t got = 0;
  while ((got = ::recv(read_end.get(), &said, sizeof(said), 0)) < 0 && errno == EINTR) {
  }
  if (got <= 0) return child;  // the program runs: its execve(2) closed the socket
  ::waitpid(child, nullptr, 0);
  return Explained(said, options.file);
}

}  // namespace salius::run
