#include "common/host.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "common/check.h"
#include "common/file.h"

namespace salius {
namespace {

// Newer than this distribution's headers (Linux 6.8).
constexpr unsigned kStatxMntIdUnique = 0x4000;

}  // namespace

absl::StatusOr<std::string> BootId() {
  SALIUS_ASSIGN_OR_RETURN(std::string id, ReadWholeFile("/proc/sys/kernel/random/boot_id"));
  absl::StripAsciiWhitespace(&id);
  if (id.empty()) return absl::InternalError("/proc/sys/kernel/random/boot_id is empty");
  return id;
}

absl::StatusOr<uint64_t> UniqueMountId(int fd) {
  struct statx result = {};
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, kStatxMntIdUnique, &result) != 0) {
    return ErrnoStatus(errno, "statx");
  }
  if ((result.stx_mask & kStatxMntIdUnique) == 0) {
    return absl::UnimplementedError("this kernel has no unique mount ids (Linux 6.8 has)");
  }
  return result.stx_mnt_id;
}

unsigned AvailableCpus() {
  cpu_set_t cpus;
  // This fails where there are more CPUs than `cpus` holds; hardware_concurrency() counts those
  // that are online.
  const bool known = sched_getaffinity(0, sizeof(cpus), &cpus) == 0;
  return std::max(
      1u, known ? static_cast<unsigned>(CPU_COUNT(&cpus)) : std::thread::hardware_concurrency());
}

}  // namespace salius
