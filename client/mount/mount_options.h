// The options of a mount (`-o a,b=c`): Salius' own, those of mount(2), and those of mount(8) and
// systemd that mean nothing to a daemon. salius-mount(8) lists them for users.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/key_rotation.h"
#include "client/volume/contract.h"
#include "client/volume/fetch_policy.h"
#include "client/volume/patch_memory.h"
#include "storage/volume_config.h"

namespace salius {

enum class RecoverMode { kAuto, kRefuse };

struct MountOptions {
  // Override volume.toml for this session.
  std::optional<std::vector<std::string>> replicas;
  std::optional<uint32_t> acks;
  std::optional<uint64_t> delta_us;
  std::optional<uint64_t> tau_ms;
  std::optional<uint32_t> k;
  std::optional<uint64_t> log_max_bytes;
  std::optional<uint64_t> bulk_limit_bytes;
  std::optional<uint32_t> datagram_bytes;
  std::optional<std::string> multicast;
  std::optional<NameMode> names;
  std::optional<std::string> keys;    // file of `salius keys`, absolute; empty: none
  MountContract contract;             // commit, fsync, osync-exempt
  bool output_triggered = false;      // trigger=output
  std::optional<bool> fsync_orders;   // fsync, as given; `contract` has what it means
  FetchMode fetch = kDefaultFetch;
  uint64_t patch_memory_bytes = kDefaultPatchMemoryBytes;

  RecoverMode recover = RecoverMode::kAuto;
  bool insecure = false;  // replicas may be anywhere, not on this host only
  uint64_t key_rotation_s = kKeyRotationS;  // how often the key of the datagrams changes; 0: never
  std::string metrics;    // "host:port", empty: none
  std::string log_level = "info";
  std::string log_file;   // of a daemon in the background; empty: /var/log/salius/<uuid>.log
  int threads = 0;        // workers; 0: min(8, 2 * cpus)
  uint64_t spin_us = 80;  // how long a thread polls before it sleeps
  unsigned long mount_flags = 0;  // MS_* of mount(2)

  bool remount = false;            // change the present mount
  bool bind = false;               // with remount: the flags of that one mount only
  std::vector<std::string> given;  // names of Salius' own options, as they came
};

// Takes the words of one or more -o arguments, in order; a later one wins. INVALID_ARGUMENT names
// the wrong value and the allowed ones; an unknown option is an error that lists the known ones, or
// names the right spelling.
absl::StatusOr<MountOptions> ParseMountOptions(const std::vector<std::string>& option_lists);

// Returns the contract for the status: "sync", "ordered", "sync,fsync=osync,osync-exempt=o_sync".
std::string ContractText(const MountContract& contract);

// Returns a paragraph for --help: every option with its value.
std::string MountOptionsHelp();

// Puts the session's values over the volume's. A relaxed contract has names=async, whatever
// volume.toml says. INVALID_ARGUMENT as ValidateVolumeConfig.
absl::Status OverrideConfig(const MountOptions& options, VolumeConfig* config);

// Returns OK if a mounted volume can get `wanted`, which names the changes and may repeat the rest.
// `now`: the options of the mount; `config`: the config in use. Flags of the kernel can change.
// INVALID_ARGUMENT names an option of Salius' own that has another value.
absl::Status CheckRemount(const MountOptions& now, const VolumeConfig& config,
                          const MountOptions& wanted);

// Returns the number of workers when the user names none.
int DefaultThreads(unsigned cpus);
// Returns the number of workers.
int WorkerCount(const MountOptions& options, unsigned cpus);
// Returns how many nanoseconds a thread polls before it sleeps. With one CPU it is 0: a polling
// worker would keep the program from running.
int64_t SpinNanos(const MountOptions& options, unsigned cpus);

// Return whether reading a file, or a directory, leaves its access time as it is.
bool LeavesAtime(const MountOptions& options);
bool LeavesDirAtime(const MountOptions& options);
// Returns whether every operation on names waits until it is durable: dirsync, or sync.
bool SyncsNames(const MountOptions& options);

}  // namespace salius
