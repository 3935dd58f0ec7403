// Parses the replica's configuration file. An accepted file is within the documented bounds; a
// refused one gives an error message.
#include "common/check.h"
#include "replica/arena.h"
#include "replica/options.h"
#include "tests/fuzz/fuzz_scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  WriteScratch("replica.toml", absl::MakeConstSpan(data, size));
  const auto options = ParseReplicaOptions({"--config", ScratchPath() + "/replica.toml"});
  if (!options.ok()) {
    SALIUS_CHECK(absl::IsInvalidArgument(options.status())) << options.status();
    SALIUS_CHECK(!options.status().message().empty());
    return 0;
  }
  SALIUS_CHECK(options->memory_bytes >= kMinArenaBytes && options->memory_bytes <= kMaxArenaBytes);
  SALIUS_CHECK(options->abandon_after_us == 0 || options->abandon_after_us >= 60'000'000);
  SALIUS_CHECK(!options->shm_dir.empty() && !options->listen.host.empty());
  return 0;
}
