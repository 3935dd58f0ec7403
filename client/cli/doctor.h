// `salius doctor`: checks whether this host, this directory and this network have what a volume
// needs. It changes nothing.
//
// Each part gathers facts and judges them. The judgement is pure, so that a test can give it any
// host.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cli/findings.h"
#include "client/status/placement.h"
#include "common/ids.h"
#include "common/keys/x509.h"
#include "log/recovery_notes.h"
#include "log/state_file.h"
#include "proto/control.pb.h"
#include "storage/volume_config.h"

namespace salius {
class Credentials;  // transport/credentials.h
}  // namespace salius

namespace salius::cli {

// Runs the subcommand; `words` are the arguments after its name. Returns the exit code.
int RunDoctor(absl::Span<const std::string> words);

// ---- the host (doctor_host.cc)

struct HostFacts {
  std::string kernel;               // uname -r
  absl::Status fuse_device;         // opening /dev/fuse
  std::string fusermount;           // path of fusermount3, empty: none
  bool root = false;                // effective user
  bool mounts = true;               // it is to mount volumes, which direct volumes do not need
  uint64_t open_files_limit = 0;    // hard limit
  uint64_t memlock_limit = 0;       // hard limit in bytes, UINT64_MAX: none
  uint64_t receive_buffer_max = 0;  // net.core.rmem_max
  // fs.fuse.default_request_timeout and max_request_timeout in seconds; 0: none, or an older kernel
  uint64_t fuse_default_timeout_s = 0, fuse_max_timeout_s = 0;
  int64_t monotonic_step_ns = 0;    // between two readings of the monotonic clock
  int64_t realtime_s = 0;           // since 1970
};
HostFacts GatherHostFacts();
void JudgeHost(const HostFacts& facts, Findings& findings);

// ---- the directory (doctor_directory.cc)

struct DirectoryFacts {
  std::string path;
  int64_t fs_type = 0;  // statfs f_type
  bool read_only = false;
  bool flushes_nothing = false;  // mounted with nobarrier
  uint64_t ext4_errors = 0;      // since e2fsck last ran; 0 for other file systems
  absl::Status trusted_xattr;    // setting one on a nameless file
  absl::Status user_xattr;       // likewise
  absl::Status file_handle;      // opening the directory by its handle
  uint64_t free_bytes = 0;
  uint64_t free_inodes = 0, total_inodes = 0;  // total 0: not counted

  bool volume = false;         // there is a .salius
  absl::Status config_status;  // opening it; DATA_LOSS without a .salius where there was one
  // The fields below are set only when it is a volume.
  VolumeConfig config;
  absl::Status state_status;  // reading the state
  VolumeState state;
  RecoveryNotes recoveries;
  absl::Status stable_log;  // presence
  uint64_t stable_log_bytes = 0, stable_log_allocated = 0;
};
// Returns whether the directory is a direct volume.
bool IsDirect(const DirectoryFacts& facts);
// Gathers the facts of the directory. Errors: NOT_FOUND and the like, when the directory cannot be
// examined at all.
absl::StatusOr<DirectoryFacts> GatherDirectoryFacts(const std::string& path);
void JudgeDirectory(const DirectoryFacts& facts, int64_t realtime_ns, Findings& findings);

// ---- the replicas (doctor_replicas.cc)

struct ReplicaFacts {
  std::string address;
  bool refused = false;  // a handshake ended with a refusal, here or there
  // With keys: the certificate that it shows, and how far its clock is ahead of this host's.
  std::optional<keys::Certificate> certificate;
  std::optional<int64_t> clock_ahead_ms;
  std::string ip;  // numeric; empty: not known
  absl::Status resolved;
  absl::StatusOr<uint32_t> datagram_bytes = uint32_t{0};  // payload that the route carries
  absl::StatusOr<control::ReplicaStatusResponse> status;
  absl::StatusOr<int64_t> udp_rtt_us = int64_t{0};
};
// `keys`: of this process; null: none. `volume`: asks for its owner; null: none.
ReplicaFacts GatherReplicaFacts(const std::string& address,
                                const std::shared_ptr<Credentials>& keys = nullptr,
                                const VolumeId* volume = nullptr);
void JudgeReplicas(const VolumeConfig& config, absl::Span<const ReplicaFacts> replicas,
                   Findings& findings);

// ---- keys (doctor_keys.cc)

struct KeyFacts {
  std::string path;      // empty: no keys
  absl::Status problem;  // of keys::LoadKeys
  // The fields below are set only when there is no problem.
  std::optional<keys::Certificate> certificate;
  std::vector<keys::Certificate> authorities;
};
// `now_s`: in seconds since 1970, here and below.
KeyFacts GatherKeyFacts(const std::string& path, int64_t now_s);
// `calls`: the keys are of a program that calls replicas. No findings without keys.
void JudgeKeys(const KeyFacts& facts, bool calls, int64_t now_s, Findings& findings);
// Judges the certificate, the clock and the owner at a replica that answered; `own`: this host's.
void JudgeReplicaKeys(const ReplicaFacts& replica, const KeyFacts& own, int64_t now_s,
                      Findings& findings);

// Warns of replicas on the primary itself and of two replicas on one host.
void JudgePlacement(const VolumeConfig& config, absl::Span<const ReplicaFacts> replicas,
                    const PrimaryHost& host, Findings& findings);

}  // namespace salius::cli
