// The sockets at which a mounted volume answers.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "common/ids.h"

namespace salius {

inline constexpr char kRunDirectory[] = "/run/salius";

// Returns "<directory>/<uuid>.sock".
inline std::string SocketPathOf(const VolumeId& volume,
                                const std::string& directory = kRunDirectory) {
  return absl::StrCat(directory, "/", volume.ToString(), ".sock");
}

// Returns "<directory>/<uuid>.gate": the gate socket of a mount with commit=external
// (client/gate/messages.h).
inline std::string GatePathOf(const VolumeId& volume,
                              const std::string& directory = kRunDirectory) {
  return absl::StrCat(directory, "/", volume.ToString(), ".gate");
}

}  // namespace salius
