// Parses the command lines of the programs. An accepted command line is within the documented
// bounds; a refused one gives an error message.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "client/mount/mount_command.h"
#include "client/mount/mount_options.h"
#include "common/check.h"
#include "recovery/command_line.h"
#include "replica/arena.h"
#include "replica/options.h"
#include "storage/volume_config.h"

namespace salius {
namespace {

template <typename T>
bool Accepted(const absl::StatusOr<T>& parsed) {
  if (parsed.ok()) return true;
  SALIUS_CHECK(!parsed.status().message().empty()) << parsed.status();
  return false;
}

void CheckOptions(const MountOptions& options) {
  SALIUS_CHECK(options.threads >= 0 && options.threads <= 48);
  SALIUS_CHECK(options.spin_us <= 1000);
  // Applied to a volume's own config, the options give a valid config or an error.
  VolumeConfig config = DefaultVolumeConfig();
  config.replicas = {"a:7400", "b:7400"};
  config.acks = 2;
  const absl::Status status = OverrideConfig(options, &config);
  if (status.ok()) SALIUS_CHECK_OK(ValidateVolumeConfig(config));
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> words = absl::StrSplit(text, '\n');
  if (const auto options = ParseMountOptions(words); Accepted(options)) CheckOptions(*options);
  if (const auto command = ParseSaliusMount(words); Accepted(command)) {
    CheckOptions(command->options);
  }
  if (const auto command = ParseMountHelper(words); Accepted(command)) {
    CheckOptions(command->options);
  }
  Accepted(recovery::ParseCommandLine(words));
  // The parser must not read a file that the input names.
  if (!absl::StrContains(text, "config")) {
    if (const auto options = ParseReplicaOptions(words); Accepted(options)) {
      SALIUS_CHECK(options->memory_bytes >= kMinArenaBytes &&
                   options->memory_bytes <= kMaxArenaBytes);
    }
  }
  return 0;
}
