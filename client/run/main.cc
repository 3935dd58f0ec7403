// salius-run: runs a command on a direct volume (docs/direct.md), or with its outputs gated at
// mounts (docs/external-synchrony.md).
#include <cstdio>
#include <string>
#include <vector>

#include "client/run/await_command.h"
#include "client/run/command_line.h"
#include "client/run/direct_run.h"
#include "client/run/mount_run.h"
#include "common/daemon.h"
#include "common/log.h"
#include "common/strings.h"

namespace salius::run {
namespace {

int Complain(const absl::Status& status, int code) {
  std::fprintf(stderr, "salius-run: %s\n",
               Printable(std::string(status.message()), NewLines::kReplace).c_str());
  return code;
}

int ExitCodeOf(const absl::Status& status) {
  if (absl::IsPermissionDenied(status)) return kExitNotExecutable;
  return absl::IsNotFound(status) ? kExitNotFound : kExitFailure;
}

int Main(const std::vector<std::string>& words) {
  absl::StatusOr<RunCommand> command = ParseRunCommand(words);
  if (!command.ok()) return Complain(command.status(), kExitFailure);
  if (command->answer.has_value()) {
    std::fputs(command->answer->c_str(), stdout);
    return 0;
  }
  BlockSignals();
  if (const absl::Status level = InitLogging("salius-run", command->log_level); !level.ok()) {
    return Complain(level, kExitFailure);
  }
  const absl::StatusOr<int> code = command->direct.empty() ? RunAtMounts(*command) : Run(*command);
  return code.ok() ? *code : Complain(code.status(), ExitCodeOf(code.status()));
}

}  // namespace
}  // namespace salius::run

int main(int argc, char** argv) {
  salius::UsePlainMutexes();
  return salius::run::Main(std::vector<std::string>(argv + 1, argv + argc));
}
