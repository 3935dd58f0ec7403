#include "storage/clean_volume.h"

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/file.h"
#include "storage/volume_config.h"

namespace salius {

absl::Status CheckVolume(const VolumeState& state, const VolumeId& volume) {
  if (state.volume == volume) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "%s/%s belongs to volume %s, %s says %s: put this volume's own back", kSaliusDir,
      kStateFileName, state.volume.ToString(), kVolumeFileName, volume.ToString()));
}

absl::StatusOr<StableLog> OpenCleanLog(Files& files, int salius_fd, const VolumeState& state) {
  absl::StatusOr<StableLog> stable =
      StableLog::Open(files, salius_fd, kStableLogFileName, state.volume, nullptr);
  if (absl::IsNotFound(stable.status())) {
    return absl::DataLossError(
        absl::StrFormat("%s is missing", PathAt(salius_fd, kStableLogFileName)));
  }
  if (!stable.ok() || stable->newest_epoch() <= state.epoch) return stable;
  return absl::DataLossError(absl::StrFormat(
      "%s says that the volume was closed by session %d, but %s has records of session %d: an "
      "older note was put there, or the latest one can no longer be read. Put the latest back; "
      "without it what that session acknowledged and had not written to this disk is lost",
      PathAt(salius_fd, kStateFileName), state.epoch, kStableLogFileName, stable->newest_epoch()));
}

}  // namespace salius
