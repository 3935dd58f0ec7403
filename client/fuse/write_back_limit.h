// How many dirty pages the kernel keeps of a mount before it makes the programs wait that dirty
// them. A FUSE file system gets one hundredth of what a disk may have, because the kernel trusts no
// daemon to write pages back. Stores through a shared map, the only writes that leave dirty pages
// here, are then as slow as the write-back itself.
//
// A mount of ours gets the limits of a disk. The daemon cannot wait for its own pages: it is exempt
// from the limits of other file systems (PR_SET_IO_FLUSHER), and writes to the backing file system
// only.
//
// Threads: any.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace salius {

// The kernel's directory of write-back devices.
inline constexpr char kBdiDirectory[] = "/sys/class/bdi";

// Sets the limits of the file system `device` ("major:minor") below `directory` to those of a disk:
// `strict_limit` 0, `max_ratio` 100. Errors: the errno of the file that cannot be written, as when
// /sys is read-only (containers) or the kernel is older than 6.2.
absl::Status LiftWriteBackLimit(const std::string& directory, const std::string& device);

}  // namespace salius
