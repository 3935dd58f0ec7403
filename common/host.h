// Facts about the host this process runs on.
#ifndef SALIUS_COMMON_HOST_H_
#define SALIUS_COMMON_HOST_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace salius {

// Returns the kernel's UUID of this boot, as text: the same until the host is booted again.
absl::StatusOr<std::string> BootId();

// Returns the id of the mount that `fd` lies on, never reused within a boot. UNIMPLEMENTED before
// Linux 6.8.
absl::StatusOr<uint64_t> UniqueMountId(int fd);

// Returns the CPUs this process may run on (taskset(1), a cgroup's cpuset); at least 1.
unsigned AvailableCpus();

}  // namespace salius

#endif  // SALIUS_COMMON_HOST_H_
