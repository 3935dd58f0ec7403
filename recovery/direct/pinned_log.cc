#include "recovery/direct/pinned_log.h"

#include <fcntl.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "storage/volume_config.h"

namespace salius::recovery {
namespace {

constexpr uint64_t kPageBytes = 4096;
// Room for the decision, the pads at the ring's end and the log's own slack; also the least size.
constexpr uint64_t kSlackBytes = uint64_t{1} << 20;

std::string NewName() { return absl::StrCat(kStableLogFileName, ".new"); }

absl::Status RemoveIfThere(Backing& backing, int dirfd, const std::string& name) {
  const absl::Status removed = backing.Unlink(dirfd, name, 0);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace

absl::StatusOr<StableLog> MakePinnedLog(Backing& backing, int salius_fd, const VolumeId& volume,
                                        const std::vector<const RecordView*>& records) {
  SALIUS_RETURN_IF_ERROR(RemovePinnedLog(backing, salius_fd));
  uint64_t bytes = kSlackBytes;
  for (const RecordView* record : records) {
    bytes += StableLog::EntryBytes(record->header.total_bytes());
  }
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  absl::StatusOr<StableLog> log = StableLog::Create(backing, salius_fd, NewName(), volume, bytes);
  if (absl::IsResourceExhausted(log.status())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for the ", bytes,
                     " bytes of the decided records: nothing is lost; free "
                     "space on the disk and run this again (",
                     log.status().message(), ")"));
  }
  SALIUS_RETURN_IF_ERROR(log.status());
  SALIUS_RETURN_IF_ERROR(backing.Rename(salius_fd, NewName(), salius_fd, kStableLogFileName, 0));
  SALIUS_RETURN_IF_ERROR(backing.Fsync(salius_fd));
  return log;
}

absl::Status RemovePinnedLog(Backing& backing, int salius_fd) {
  SALIUS_RETURN_IF_ERROR(RemoveIfThere(backing, salius_fd, NewName()));
  return RemoveIfThere(backing, salius_fd, kStableLogFileName);
}

}  // namespace salius::recovery
