#include "client/run/command_line.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/options.h"
#include "common/version.h"

namespace salius::run {
namespace {

Options Table(RunCommand& command) {
  Options table("salius-run", "-- COMMAND...",
                "Runs a command whose synchronous writes in a directory become durable in the\n"
                "memory of the volume's replicas.");
  table.Text("direct", "DIR", &command.direct, "the directory, a direct volume (salius init --direct)");
  table.Choice("commit", {"sync", "external"}, &command.commit,
               "a sync call waits (sync), or the next output does (external)");
  table.Choice("trigger", {"eager", "output"}, &command.trigger,
               "with external: send records at once, or when an output waits (eager)");
  table.Choice("recover", {"auto", "refuse"}, &command.recover,
               "after a crash: recover first, or refuse (auto)");
  table.Switch("insecure", &command.insecure,
               "allow replicas on other hosts although nothing is encrypted");
  table.Switch("stats", &command.stats, "print at the end how the syncs were made durable");
  table.LogLevel(&command.log_level);
  table.Version(absl::StrCat("salius-run ", kSaliusVersion));
  table.Note(
      "Exit codes: that of COMMAND; 128 and the signal that ended it; 125 the volume cannot be\n"
      "used, 126 COMMAND cannot be executed or is refused, 127 COMMAND is not found.");
  return table;
}

}  // namespace

absl::StatusOr<RunCommand> ParseRunCommand(const std::vector<std::string>& words) {
  RunCommand command;
  Options table = Table(command);
  const auto end = std::find(words.begin(), words.end(), "--");
  SALIUS_RETURN_IF_ERROR(table.Parse(std::vector<std::string>(words.begin(), end), 0, 0));
  command.answer = table.answer();
  if (command.answer.has_value()) return command;
  if (command.direct.empty()) {
    return absl::InvalidArgumentError("--direct DIR is missing (see salius-run --help)");
  }
  if (command.trigger == "output" && command.commit != "external") {
    return absl::InvalidArgumentError("--trigger=output needs --commit=external");
  }
  if (end != words.end()) command.command.assign(end + 1, words.end());
  if (command.command.empty()) {
    return absl::InvalidArgumentError(
        "the command is missing: salius-run --direct DIR -- COMMAND... (see salius-run --help)");
  }
  return command;
}

}  // namespace salius::run
