#include "client/run/command_line.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/options.h"
#include "common/version.h"

namespace salius::run {
namespace {

Options Table(RunCommand& command) {
  Options table("salius-run", "-- COMMAND...",
                "Runs a command whose synchronous writes in a directory become durable in the\n"
                "memory of the volume's replicas. Without --direct: a command whose sync calls on\n"
                "mounts with commit=external return at once, and whose outputs wait.");
  table.Text("direct", "DIR", &command.direct, "the directory, a direct volume (salius init --direct)");
  table.Choice("commit", {"sync", "external"}, &command.commit,
               "a sync call waits (sync), or the next output does (external)");
  table.Choice("trigger", {"eager", "output"}, &command.trigger,
               "with external: send records at once, or when an output waits (eager)");
  table.Choice("recover", {"auto", "refuse"}, &command.recover,
               "after a crash: recover first, or refuse (auto)");
  table.Switch("insecure", &command.insecure,
               "allow replicas on other hosts without keys: nothing is encrypted");
  table.Text("keys", "FILE", &command.keys,
             "this host's key and certificate, of `salius keys`, in place of the\nvolume's; '': none");
  table.Number("key-rotation", "SECONDS", &command.key_rotation_s, 0, kMostKeyRotationS,
               "how often the key of sealed datagrams changes; 0: never (3600)");
  table.Switch("stats", &command.stats, "print at the end how the syncs were made durable");
  table.LogLevel(&command.log_level);
  table.Version(absl::StrCat("salius-run ", kSaliusVersion));
  table.Note(
      "Exit codes: that of COMMAND; 128 and the signal that ended it; 125 the volume cannot be\n"
      "used or there is no such mount, 126 COMMAND cannot be executed or is refused, 127 COMMAND is not found.");
  return table;
}

// Refuses the options that are a direct volume's.
absl::Status CheckForMounts(const Options& given, const std::string& commit) {
  constexpr std::pair<const char*, const char*> kOfMounts[] = {
      {"commit", "a mount has its own: mount -o commit=external"},
      {"trigger", "a mount has its own: mount -o trigger="},
      {"recover", "a mount has its own: mount -o recover="},
      {"insecure", "a mount has its own: mount -o insecure"},
      {"keys", "a mount has its own: mount -o keys="},
      {"key-rotation", "a mount has its own: mount -o key-rotation="},
      {"stats", "`salius status` shows the gate of a mount"},
  };
  for (const auto& [name, instead] : kOfMounts) {
    const bool true_there = std::string_view(name) == "commit" && commit == "external";
    if (given.Given(name) && !true_there) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " needs --direct DIR; ", instead, " (see salius-run --help)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RunCommand> ParseRunCommand(const std::vector<std::string>& words) {
  RunCommand command;
  Options table = Table(command);
  const auto end = std::find(words.begin(), words.end(), "--");
  SALIUS_RETURN_IF_ERROR(table.Parse(std::vector<std::string>(words.begin(), end), 0, 0));
  command.answer = table.answer();
  if (command.answer.has_value()) return command;
  if (command.direct.empty()) SALIUS_RETURN_IF_ERROR(CheckForMounts(table, command.commit));
  if (command.trigger == "output" && command.commit != "external") {
    return absl::InvalidArgumentError("--trigger=output needs --commit=external");
  }
  if (end != words.end()) command.command.assign(end + 1, words.end());
  if (command.command.empty()) {
    return absl::InvalidArgumentError(
        "the command is missing: salius-run [--direct DIR] -- COMMAND... (see salius-run --help)");
  }
  return command;
}

}  // namespace salius::run
