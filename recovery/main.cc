// salius-recover: brings a volume whose primary died to the state after its last acknowledged
// operation (docs/recovery.md). The work is recovery/recovery.h; this is its command.
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/daemon.h"
#include "common/log.h"
#include "common/strings.h"
#include "recovery/command_line.h"
#include "recovery/progress.h"
#include "recovery/recovery.h"
#include "storage/direct_volume.h"
#include "storage/host_claim.h"
#include "storage/volume_config.h"
#include "storage/volume_rights.h"
#include "transport/credentials.h"

namespace salius::recovery {
namespace {

// Returns the hook of --crash-at: it kills the process at the step's n-th occurrence.
std::function<absl::Status(RecoveryStep)> CrashHook(const CommandLine& line) {
  if (!line.crash_at.has_value()) return nullptr;
  return [step = *line.crash_at, left = line.crash_count](RecoveryStep at) mutable {
    if (at == step && --left == 0) kill(getpid(), SIGKILL);
    return absl::OkStatus();
  };
}

// Lifts the limit of a file's size, and gives up capabilities. Before any thread: threads inherit what
// is left.
absl::Status PrepareProcess() {
  SALIUS_RETURN_IF_ERROR(LiftFileSizeLimit());
  SALIUS_ASSIGN_OR_RETURN(const std::string rights, KeepRightsForVolume({}));
  SLOG_DEBUG("{}", rights);
  return absl::OkStatus();
}

// Prints a failure. It may name users' files, whose names must not act on the terminal.
void Complain(const std::string& why) {
  std::fprintf(stderr, "%ssalius-recover: %s\n", std::string(LinePrefix(LogLevel::kError)).c_str(),
               Printable(why, NewLines::kReplace).c_str());
}

int Main(const std::vector<std::string>& arguments) {
  absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  if (line.ok()) {
    if (const absl::Status level = InitLogging("salius-recover", line->log_level); !level.ok()) {
      line = level;
    }
  }
  if (!line.ok()) {
    std::fprintf(stderr, "salius-recover: %s\n", std::string(line.status().message()).c_str());
    return kExitUsage;
  }
  if (line->answer.has_value()) {
    std::fputs(line->answer->c_str(), stdout);
    return kExitOk;
  }

  RecoveryReport report;
  RecoveryOptions options;
  options.dry_run = line->dry_run;
  options.force = line->force;
  options.until = line->until;
  if (line->timeout_ms.has_value()) {
    options.fence_timeout_ms = *line->timeout_ms;
    options.rpc_timeout_ms = std::min(options.rpc_timeout_ms, *line->timeout_ms);
  }
  options.partial_report = &report;
  options.step_hook = CrashHook(*line);
  ProgressBar bar(line->progress == "always" || (line->progress == "auto" && isatty(2) == 1),
                  SystemClock());
  options.on_progress = [&bar](const RecoveryProgress& progress) { bar.Show(progress); };

  const absl::Status prepared = PrepareProcess();
  // R3, R5, R7: refused where the lock is held, or a part of `.salius` is missing or another's.
  absl::StatusOr<VolumeDir> dir = prepared.ok() ? VolumeDir::Open(line->backing, /*lock=*/true)
                                              : absl::StatusOr<VolumeDir>(prepared);
  if (dir.ok()) {
    absl::StatusOr<std::shared_ptr<Credentials>> keys =
        Credentials::Load(line->keys.value_or(dir->config.keys));
    if (!keys.ok()) {
      Complain(std::string(keys.status().message()));
      return kExitUsage;
    }
    options.keys = *std::move(keys);
  }
  if (dir.ok()) {
    if (const absl::Status owned = CheckDirectOwner(*dir); !owned.ok()) dir = owned;
  }
  // R4: claim before any replica is asked. The directory may be a copy of a volume that is mounted
  // here.
  if (dir.ok()) {
    if (const absl::Status claimed = ClaimOnThisHost(*dir); !claimed.ok()) dir = claimed;
  }
  int exit_code = kExitOk;
  if (!dir.ok()) {
    report.explanation = std::string(dir.status().message());
    report.outcome = RecoveryOutcome::kFailed;
    exit_code = ExitCodeOfOpen(dir.status());
  } else {
    const absl::StatusOr<RecoveryReport> done = Recover(*dir, options);
    exit_code = ExitCodeOf(report.outcome);
    bar.Clear();
    if (!done.ok()) {
      const std::string advice = RecoveryAdvice(report.outcome);
      Complain(absl::StrCat(done.status().message(), advice.empty() ? "" : "; ", advice));
    }
  }
  if (line->json) {
    std::printf("%s\n", RecoveryReportJson(report).c_str());
  } else if (!dir.ok()) {
    Complain(report.explanation);
  } else {
    std::fputs(RecoveryReportText(report).c_str(), stdout);
    if (!report.given_up.empty() && report.outcome == RecoveryOutcome::kRecovered) {
      std::printf(
          "  `salius status` and each mount say so until \"salius acknowledge %s\"\n",
          ShellQuote(dir->path).c_str());
    }
  }
  return exit_code;
}

}  // namespace
}  // namespace salius::recovery

int main(int argc, char** argv) {
  // Several threads bring the records and one replays them. With one arena of malloc that takes
  // three quarters of the time.
  mallopt(M_ARENA_MAX, 1);
  salius::UsePlainMutexes();
  salius::KeepMemoryPrivate();
  return salius::recovery::Main(std::vector<std::string>(argv + 1, argv + argc));
}
