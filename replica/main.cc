// salius-replica: keeps the logs of volumes in this host's memory (docs/replica.md,
// salius-replica(8)).
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/daemon.h"
#include "common/log.h"
#include "common/strings.h"
#include "replica/options.h"
#include "replica/server.h"

namespace salius {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

int Fail(const absl::Status& status, int code) {
  // Write it beside the log, whose level may hide it, and after the log's lines. While those wait
  // for stderr, this would wait too.
  if (!FlushLog()) ::_exit(code);
  std::fprintf(stderr, "%ssalius-replica: %s\n", std::string(LinePrefix(LogLevel::kError)).c_str(),
               std::string(Sv(status.message())).c_str());
  return code;
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<ReplicaOptions> options = ParseReplicaOptions(arguments);
  if (!options.ok()) return Fail(options.status(), kExitUsage);
  if (options->answer.has_value()) {
    std::fputs(options->answer->c_str(), stdout);
    return 0;
  }
  if (const absl::Status log = InitLogging("salius-replica", options->log_level); !log.ok()) {
    return Fail(log, kExitUsage);
  }
  KeepMemoryPrivate();
  // Before any thread: they inherit the blocked signals.
  SignalWaiter signals;
  // The receiving thread writes to the log, and so do calls that answer a fence. Neither may wait
  // for a reader of stderr. Nothing forks after this.
  LogInBackground();
  if (const absl::StatusOr<uint64_t> limit = RaiseFdLimit(); !limit.ok()) {
    SLOG_WARN("limit of open files: {}", Sv(limit.status().message()));
  }
  if (const absl::Status lifted = LiftFileSizeLimit(); !lifted.ok()) {
    return Fail(lifted, kExitFailure);
  }
  if (const absl::Status wrong = ReplicaServer::CheckOptions(*options); !wrong.ok()) {
    return Fail(wrong, kExitUsage);
  }
  absl::StatusOr<std::unique_ptr<ReplicaServer>> server =
      ReplicaServer::Start(*options, SystemClock());
  if (!server.ok()) return Fail(server.status(), kExitFailure);
  NotifyReady();
  SLOG_INFO("version {} serves on {} (UDP port {}; control: {})", kReplicaVersion,
            options->listen.ToString(), (*server)->port(), (*server)->control_place());
  // SIGHUP has nothing to reload: the arena's size and the address are fixed for the process's
  // life.
  while (signals.Wait() == SIGHUP) {
    SLOG_INFO("SIGHUP: nothing to reload, restart to change options; the memory stays");
  }
  NotifyStopping();
  SLOG_INFO("shutting down; the arena stays in {}", options->shm_dir);
  (*server)->Stop();
  return 0;
}

}  // namespace
}  // namespace salius

int main(int argc, char** argv) {
  salius::UsePlainMutexes();
  const int code = salius::Main(std::vector<std::string>(argv + 1, argv + argc));
  if (!salius::FlushLog()) ::_exit(code);
  return code;
}
