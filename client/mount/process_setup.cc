#include "client/mount/process_setup.h"

#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "common/check.h"
#include "common/daemon.h"
#include "common/file.h"
#include "common/host.h"
#include "common/log.h"

namespace salius {

absl::Status PrepareProcess() {
  SALIUS_RETURN_IF_ERROR(LiftFileSizeLimit());
  ::umask(0);  // callers choose the modes
  // Memory reclaim must not wait for this file system, whose daemon may wait for memory.
  if (::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0) {
    SLOG_DEBUG("PR_SET_IO_FLUSHER: not available");
  }
  // Each of malloc's arenas keeps the memory that its fullest log took, and by default there are
  // eight for each CPU.
  static_cast<void>(::mallopt(M_ARENA_MAX, static_cast<int>(AvailableCpus())));
  return absl::OkStatus();
}

void RaiseDescriptorLimit() {
  const absl::StatusOr<std::string> most = ReadWholeFile("/proc/sys/fs/nr_open");
  uint64_t files = 0;
  if (most.ok() && absl::SimpleAtoi(*most, &files)) {
    const rlimit wanted{files, files};
    if (::setrlimit(RLIMIT_NOFILE, &wanted) == 0) return;
  }
  const absl::StatusOr<uint64_t> limit = RaiseFdLimit();
  if (limit.ok()) SLOG_INFO("{} descriptors: nearly half of them are for open files", *limit);
}

void KeepFreedMemory() {
  constexpr int kTrimBytes = 128 << 20;
  constexpr int kMapBytes = 4 << 20;  // larger than any record
  // A refused setting stays unchanged.
  static_cast<void>(::mallopt(M_TRIM_THRESHOLD, kTrimBytes));
  static_cast<void>(::mallopt(M_MMAP_THRESHOLD, kMapBytes));
}

}  // namespace salius
