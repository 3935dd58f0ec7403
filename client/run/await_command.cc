#include "client/run/await_command.h"

#include <signal.h>
#include <sys/wait.h>

#include <cstdio>

#include "client/run/command_line.h"
#include "common/check.h"
#include "common/strings.h"

namespace salius::run {
namespace {

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

int AwaitCommand(pid_t child) {
  const sigset_t set = Signals();
  while (true) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&set, &info);
    int status = 0;
    if (signal == SIGCHLD || signal < 0) {
      const pid_t ended = ::waitpid(child, &status, WNOHANG);
      if (ended == child && WIFEXITED(status)) return WEXITSTATUS(status);
      if (ended == child && WIFSIGNALED(status)) return kExitSignal + WTERMSIG(status);
    } else if (info.si_code <= 0) {
      // One of the terminal (it has no sender) reached the command itself.
      ::kill(child, signal);
    }
  }
}

void Say(const std::string& text) {
  std::fprintf(stderr, "salius-run: %s\n", Printable(text, NewLines::kReplace).c_str());
}

}  // namespace salius::run
