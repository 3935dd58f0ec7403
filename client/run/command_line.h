// The command line of salius-run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session/key_rotation.h"

namespace salius::run {

// Exit codes of salius-run itself, as env(1) and timeout(1) have them. Others are the command's.
inline constexpr int kExitFailure = 125;        // the command was not started
inline constexpr int kExitNotExecutable = 126;  // it cannot be executed, or is refused
inline constexpr int kExitNotFound = 127;
inline constexpr int kExitSignal = 128;  // and the number of the signal that ended the command

struct RunCommand {
  std::string direct;  // the volume's directory; "": the command runs at mounts
  bool insecure = false;
  std::optional<std::string> keys;  // the file; "": none; without a value: that of the volume
  uint64_t key_rotation_s = kKeyRotationS;  // how often the key of the datagrams changes; 0: never
  bool stats = false;
  std::string commit = "sync";    // the promise of a sync call: sync, external
  std::string trigger = "eager";  // of external: when records are sent: eager, output
  std::string recover = "auto";
  std::string log_level = "warn";
  std::vector<std::string> command;   // the program and its arguments
  std::optional<std::string> answer;  // the text of --help or --version, in place of all else
};

// Parses the words after the program's name. INVALID_ARGUMENT names the mistake.
absl::StatusOr<RunCommand> ParseRunCommand(const std::vector<std::string>& words);

}  // namespace salius::run
