// `.salius/volume.toml`: the decisions of `salius init` about a volume. Written once, read by the
// mount and by recovery. Mount options may override addresses and times for a session. Printable
// ASCII, without tables.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ext4_watch.h"
#include "common/ids.h"
#include "storage/backing.h"

namespace salius {

inline constexpr char kSaliusDir[] = ".salius";
inline constexpr char kVolumeFileName[] = "volume.toml";
inline constexpr char kStateFileName[] = "state";
inline constexpr char kStableLogFileName[] = "stable.log";
inline constexpr char kLockFileName[] = "lock";
inline constexpr char kBallastFileName[] = "ballast";  // freed when recovery runs out of space
inline constexpr char kOpenDirName[] = "open";         // hidden links of nameless files, by id
inline constexpr char kTmpDirName[] = "tmp";           // objects being made, by id
inline constexpr char kLostDirName[] = "lost";         // objects that a recovery set aside

// When an operation on names (create, link, unlink, rename) returns: when it is durable and applied,
// or when its record is issued. With kAsync, fsync waits for names as it does for data.
enum class NameMode { kWait, kAsync };

// The mode of a volume whose volume.toml, of an older version, does not name one; and of a new one.
inline constexpr NameMode kDefaultNames = NameMode::kWait;
inline constexpr NameMode kNewVolumeNames = NameMode::kAsync;

// Returns "wait" or "async".
std::string_view NameModeText(NameMode mode);
// Returns the mode that the text names; INVALID_ARGUMENT with what is allowed.
absl::StatusOr<NameMode> ParseNameMode(std::string_view text);

// How programs write a volume: through its mount, or directly, under `salius-run --direct`
// (docs/direct.md). A volume keeps its kind.
enum class VolumeKind { kMount, kDirect };

// A direct volume has no stable log, no ballast and no choice of `names`.
struct VolumeConfig {
  VolumeId volume{};
  VolumeKind kind = VolumeKind::kMount;
  std::vector<std::string> replicas;  // m times "host:port" (NormalizeReplicas); empty: mode local
  uint32_t acks = 1;                  // f: 1 <= f <= m (1 when m == 0)
  uint64_t delta_us = 0;              // link delay bound
  uint64_t tau_ms = 0;                // longest time a record may wait for the primary's disk
  uint32_t k = 2;
  uint64_t log_max_bytes = 0;     // uncheckpointed bytes a session may hold
  // Capacity of stable.log; at least 1.25 * log_max_bytes + 1 MiB. 0 in a direct volume.
  uint64_t stable_log_bytes = 0;
  uint64_t bulk_limit_bytes = 0;  // unsynced bytes per file that are logged before it goes bulk
  uint64_t ballast_bytes = 0;     // space held back for recovery; 0 in a direct volume
  uint32_t datagram_bytes = 0;    // 0: from the route's MTU
  std::string multicast;          // "group:port", empty: unicast
  NameMode names = kDefaultNames;
  bool allow_same_host = false;   // no warning of replicas on the primary, or two on one host
  std::string keys;               // absolute path of this host's file of `salius keys`; empty: none
};

// Returns the config of a new volume: every default of common/limits.h, kNewVolumeNames, a random
// UUID and no replicas.
VolumeConfig DefaultVolumeConfig(VolumeKind kind = VolumeKind::kMount);

// Returns FAILED_PRECONDITION, which names the program for the other kind, unless the volume in
// `path` is of the kind `wanted`.
absl::Status CheckVolumeKind(const VolumeConfig& config, const std::string& path,
                             VolumeKind wanted);

// Checks ranges and relations: acks against the number of replicas, duplicate replicas, the syntax
// of addresses and of the path of the keys, times > 0, stable_log_bytes large enough. INVALID_ARGUMENT names the value and the
// allowed range.
absl::Status ValidateVolumeConfig(const VolumeConfig& config);

// Writes each replica as "host:port", with the default port where it has none. Text that is no
// address stays unchanged: ValidateVolumeConfig refuses it.
void NormalizeReplicas(VolumeConfig* config);

std::string VolumeConfigToToml(const VolumeConfig& config);
// Parses the file. Unknown keys are an error that names them. `source` is used in messages. The
// names and units that keys had in earlier versions are read too: "log_max_bytes", "delta_us".
absl::StatusOr<VolumeConfig> VolumeConfigFromToml(std::string_view text, std::string_view source);

// Makes `backing`/.salius with volume.toml, state (clean, epoch 0), stable.log, lock, ballast,
// open/ and tmp/, all synced. Removes the ids of an earlier volume from the files below. On any
// failure it removes the objects that it made.
//
//   ALREADY_EXISTS        there is a volume
//   FAILED_PRECONDITION   a volume lies above or below on the same file system, `backing` was one
//                         whose `.salius` is missing, or the guarantees cannot be kept there
//
// A direct volume gets no stable log, no ballast and no directories. Its `backing` must belong to
// the caller, who need not be root, and lie on a file system with `user.` extended attributes.
absl::Status CreateVolume(const std::string& backing, const VolumeConfig& config);
// Does that in a directory of `backing` that is open for reading. `path` is for messages. Does not
// check that the file system and the place are fit for a volume.
absl::Status CreateVolume(Backing& backing, int root_fd, const std::string& path,
                          const VolumeConfig& config);

// The open `.salius` directory of a volume, the backing directory, and the volume's config. The
// exclusive lock is held for the life of the object (docs/recovery.md).
struct VolumeDir {
  Backing* backing = &LinuxBacking();  // of root_fd, salius_fd and lock_fd; never null
  std::string path;      // absolute path of the backing directory
  int root_fd = -1;      // O_DIRECTORY | O_RDONLY
  int salius_fd = -1;    // O_DIRECTORY | O_RDONLY
  int lock_fd = -1;      // holds flock(LOCK_EX); -1 when opened without the lock
  int claim_fd = -1;     // claim of ClaimOnThisHost (storage/host_claim.h); closed before lock_fd
  VolumeConfig config;
  std::unique_ptr<Ext4Watch> ext4;  // since the lock was taken; null without it

  // Opens the volume. `lock` is false only for readers such as `salius status`. Errors:
  //
  //   NOT_FOUND             no directory, or no volume (the message names `salius init`)
  //   UNAVAILABLE           locked (the message names the holder's pid)
  //   FAILED_PRECONDITION   read-only, or on FUSE/NFS, which cannot keep the guarantees
  //   INVALID_ARGUMENT      volume.toml is bad
  //   DATA_LOSS             `.salius` or a part of it is missing where there was a volume
  static absl::StatusOr<VolumeDir> Open(const std::string& backing, bool lock);
  // Opens the volume in a directory of `backing` likewise, where no part of it is checked but
  // `.salius`. `root` is open for reading. There is no watch.
  static absl::StatusOr<VolumeDir> Open(Backing& backing, BackingFd root, const std::string& path,
                                        bool lock);
  VolumeDir() = default;
  VolumeDir(VolumeDir&& other) noexcept;
  VolumeDir& operator=(VolumeDir&& other) noexcept;
  ~VolumeDir();

  // Returns Ext4Watch::Check(); OK without a watch. Call it after every sync that records depend
  // on.
  absl::Status CheckSynced() const { return ext4 == nullptr ? absl::OkStatus() : ext4->Check(); }
};

// Turns the copy of a volume in `dir` (with its lock) into a volume of its own, as `config` says.
// The volume of `config` must be a new one. A new `.salius` takes the place of the old one, of
// which only lost/ is kept, and files lose their ids. Records that are not in the copy are given up
// for it. Cut off at any point it is still a copy, which can be made a volume, or is one already.
// Errors: as CreateVolume.
absl::Status MakeCopyItsOwn(const VolumeDir& dir, const VolumeConfig& config);

// Makes the ballast as large as configured again, since a recovery may have used it up. When it
// cannot, above all because there is no room, that is logged. It harms only the next recovery on a
// full disk.
absl::Status RestoreBallast(Backing& backing, int salius_fd, uint64_t bytes);

// Brings everything to the disk that was written to the volume's file system. It calls syncfs(2) on
// `root_fd`, a directory of it, and fdatasync(2) on `file_fd`, any regular file of it. XFS flushes
// the drive's cache in syncfs only when its own log has something new. An error is final: the
// kernel reports it once. RESOURCE_EXHAUSTED (ENOSPC): a thin disk below the file system is full.
absl::Status SyncVolume(Backing& backing, int root_fd, int file_fd);

}  // namespace salius
