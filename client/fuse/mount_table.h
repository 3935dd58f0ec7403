// The kernel's mount table (/proc/self/mountinfo), as far as Salius uses it.
//
// Threads: any; every call reads the table again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace salius {

// The type a volume is mounted with.
inline constexpr char kMountType[] = "fuse.salius";

struct MountEntry {
  std::string device;  // "major:minor": no two file systems have the same while both exist
  std::string mountpoint;
  std::string type;
  std::string source;
  // As in the table, comma separated: of this mount, and of the file system.
  std::string options;
  std::string super_options;
};

// Decodes the table's text; lines that do not parse are left out. Pure.
std::vector<MountEntry> ParseMountInfo(std::string_view text);

absl::StatusOr<std::vector<MountEntry>> ReadMountTable();

// Returns whether the text of mount(8)'s own table, /run/mount/utab, has an entry for `source` at
// `mountpoint`. Pure.
bool UserTableHas(std::string_view text, std::string_view source, std::string_view mountpoint);

// Returns the topmost mount at `mountpoint`. NOT_FOUND when there is none.
absl::StatusOr<MountEntry> MountAt(std::string_view mountpoint);

// Returns whether the topmost mount at `mountpoint` is Salius' for `source` (an empty source: any).
bool IsSaliusMount(std::string_view mountpoint, std::string_view source);

// Returns the backing directory of the volume mounted topmost at `mountpoint`. NOT_FOUND when there
// is none.
absl::StatusOr<std::string> BackingOf(std::string_view mountpoint);

// Returns the other places where the file system `device` is mounted in this mount namespace (bind
// mounts), without `mountpoint`. Empty also when the table cannot be read.
std::vector<std::string> OtherMountsOf(std::string_view device, std::string_view mountpoint);

// Returns whether `source` is mounted somewhere in this mount namespace.
bool IsMountedAnywhere(std::string_view source);

}  // namespace salius
