#include "client/run/await_command.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "client/run/command_line.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/strings.h"

namespace salius::run {
namespace {

// Every child that is left after the command is a process that it left behind.
bool awaits_orphans = false;

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

}  // namespace

void BlockSignals() {
  const sigset_t set = Signals();
  SALIUS_CHECK(::pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  ::signal(SIGPIPE, SIG_IGN);
}

void AdoptOrphans() {
  siginfo_t info{};
  const int found = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);
  awaits_orphans = found != 0 && errno == ECHILD && ::getpid() != 1;
  if (awaits_orphans) SALIUS_CHECK(::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
}

int AwaitCommand(pid_t child) {
  const sigset_t set = Signals();
  while (true) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&set, &info);
    if (signal == SIGCHLD || signal < 0) {
      int status = 0;
      for (pid_t ended = 1; ended > 0;) {
        ended = ::waitpid(-1, &status, WNOHANG);
        if (ended == child && WIFEXITED(status)) return WEXITSTATUS(status);
        if (ended == child && WIFSIGNALED(status)) return kExitSignal + WTERMSIG(status);
      }
    } else if (info.si_code <= 0) {
      // One of the terminal (it has no sender) reached the command itself.
      ::kill(child, signal);
    }
  }
}

bool AwaitLeftBehind(int timeout_ms) {
  if (!awaits_orphans) return true;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  const Deadline bound =
      timeout_ms < 0 ? Deadline::Never() : Deadline::AfterMillis(SystemClock(), timeout_ms);
  while (true) {
    pid_t ended = 0;
    do {
      ended = ::waitpid(-1, nullptr, WNOHANG);
    } while (ended > 0);
    if (ended < 0 && errno == ECHILD) return true;
    const int64_t left = bound.RemainingNs(SystemClock());
    if (left == 0) return false;
    const timespec patience{left / 1'000'000'000, left % 1'000'000'000};
    ::sigtimedwait(&set, nullptr, &patience);
  }
}

void Say(const std::string& text) {
  std::fprintf(stderr, "salius-run: %s\n", Printable(text, NewLines::kReplace).c_str());
}

}  // namespace salius::run
