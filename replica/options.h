// salius-replica's options: from the command line, and under the same names from a TOML file. The
// command line overrides the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net.h"
#include "common/version.h"

namespace salius {

inline constexpr const char* kReplicaVersion = kSaliusVersion;

struct ReplicaOptions {
  HostPort listen{"127.0.0.1", 7400};
  uint64_t memory_bytes = uint64_t{1} << 30;
  std::string shm_dir;         // never empty after parsing
  bool shm_dir_given = false;  // else a neighbour of it is taken when another user has its name
  std::string state_dir;       // never empty after parsing
  std::string metrics;         // "host:port", empty: none
  std::string multicast_interface;
  std::string keys;  // file of `salius keys`; empty: none
  bool insecure = false;
  // Datagrams are sealed also without keys, for tests. With keys they are.
  bool sealed = false;
  bool no_mlock = false;
  int64_t abandon_after_us = 0;  // 0: never
  uint64_t peer_share_percent = 75;
  std::string log_level = "info";

  std::optional<std::string> answer;  // to print in place of serving: --help, --version
};

// Parses `arguments`, without the program's name. INVALID_ARGUMENT names the option and its allowed
// values.
absl::StatusOr<ReplicaOptions> ParseReplicaOptions(const std::vector<std::string>& arguments);

}  // namespace salius
