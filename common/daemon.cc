#include "common/daemon.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/base/config.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/deadline.h"

namespace salius {

SignalWaiter::SignalWaiter() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signo : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signo);
  SALIUS_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  SALIUS_CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
  signals_.Reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  SALIUS_CHECK(signals_.valid() && wake_.valid(), "signalfd or eventfd");
}

int SignalWaiter::Wait() { return Poll(-1); }

int SignalWaiter::WaitFor(int64_t timeout_us) {
  // Round up, so that a short wait is not a busy one. Wait a day at most: poll takes an int.
  return Poll(static_cast<int>(std::clamp<int64_t>((timeout_us + 999) / 1000, 0, 86'400'000)));
}

int SignalWaiter::Poll(int timeout_ms) {
  Clock& clock = SystemClock();
  const Deadline end =
      timeout_ms < 0 ? Deadline::Never() : Deadline::AfterMillis(clock, timeout_ms);
  while (true) {
    signalfd_siginfo info;
    if (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      return static_cast<int>(info.ssi_signo);
    }
    uint64_t count;
    if (read(wake_.get(), &count, sizeof(count)) == sizeof(count)) return 0;
    int left_ms = -1;
    if (timeout_ms >= 0) {
      const int64_t left_ns = end.RemainingNs(clock);
      if (left_ns == 0) return -1;
      left_ms = static_cast<int>((left_ns + 999'999) / 1'000'000);
    }
    pollfd fds[] = {{signals_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    SALIUS_CHECK(poll(fds, 2, left_ms) >= 0 || errno == EINTR, "poll");
  }
}

void SignalWaiter::Wake() {
  const uint64_t one = 1;
  SALIUS_CHECK(write(wake_.get(), &one, sizeof(one)) == sizeof(one), "eventfd");
}

void NotifyReady() { sd_notify(0, "READY=1"); }

void NotifyStopping() { sd_notify(0, "STOPPING=1"); }

void UsePlainMutexes() {
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
}

void KeepMemoryPrivate() {
  // It fails only for values that Linux does not know.
  SALIUS_CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0, "prctl(PR_SET_DUMPABLE)");
}

absl::Status LiftFileSizeLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return ErrnoStatus(errno, "getrlimit");
  if (limit.rlim_cur == RLIM_INFINITY) return absl::OkStatus();
  const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_FSIZE, &none) == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("files are limited to %d bytes here: start it after \"ulimit -f unlimited\"",
                      limit.rlim_max));
}

absl::StatusOr<uint64_t> RaiseFdLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return ErrnoStatus(errno, "getrlimit");
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return ErrnoStatus(errno, "setrlimit");
  return uint64_t{limit.rlim_cur};
}

absl::StatusOr<uint64_t> ProcStatusBytes(std::string_view field) {
  SALIUS_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile("/proc/self/status"));
  const std::string prefix = absl::StrFormat("%s:", field);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, prefix)) continue;
    uint64_t kib = 0;
    if (!absl::ConsumeSuffix(&line, " kB") ||
        !absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &kib)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("/proc/self/status: %s is not in kB", field));
    }
    return kib * 1024;
  }
  return absl::NotFoundError(absl::StrFormat("/proc/self/status has no %s", field));
}

}  // namespace salius
