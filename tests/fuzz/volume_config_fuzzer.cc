// Parses volume.toml. An accepted file is valid, and is the same when it is written and read again.
#include <string_view>

#include "common/check.h"
#include "storage/volume_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = VolumeConfigFromToml(text, "fuzz");
  if (!config.ok()) return 0;
  SALIUS_CHECK_OK(ValidateVolumeConfig(*config));
  const std::string written = VolumeConfigToToml(*config);
  const auto again = VolumeConfigFromToml(written, "again");
  SALIUS_CHECK_OK(again);
  SALIUS_CHECK(VolumeConfigToToml(*again) == written);
  return 0;
}
