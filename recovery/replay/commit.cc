#include "recovery/replay/commit.h"

#include <fcntl.h>

#include <algorithm>

#include "common/check.h"
#include "common/host.h"
#include "log/applied_mark.h"

namespace salius::recovery {

absl::StatusOr<bool> IsSameLife(const VolumeDir& dir, const VolumeState& state) {
  if (state.mount_id == 0) return false;
  SALIUS_ASSIGN_OR_RETURN(const std::string boot_id, BootId());
  if (boot_id != state.boot_id) return false;
  const absl::StatusOr<uint64_t> mount_id = dir.backing->MountIdOf(dir.root_fd);
  if (absl::IsUnimplemented(mount_id.status())) return false;
  SALIUS_RETURN_IF_ERROR(mount_id.status());
  return *mount_id == state.mount_id;  // R13
}

absl::StatusOr<std::optional<Seq>> SyncSameLife(const ReplayContext& context,
                                                const VolumeState& state) {
  Backing& backing = *context.backing;
  if (!AppliedMark::IsReliedOn(backing, context.root_fd)) return std::nullopt;  // R17
  absl::StatusOr<AppliedMark> mark = AppliedMark::Open(context.salius_fd);
  SALIUS_RETURN_IF_ERROR(mark.status());
  SALIUS_ASSIGN_OR_RETURN(const BackingFd file,
                          backing.OpenAt(context.salius_fd, kStateFileName, O_RDONLY));
  mark->SyncBegins();
  const absl::Status synced = SyncVolume(backing, context.root_fd, file.get());
  mark->SyncEnds(synced.ok());  // R14
  SALIUS_RETURN_IF_ERROR(synced);
  SALIUS_RETURN_IF_ERROR(context.step(RecoveryStep::kSameLifeSynced));
  // R18: the session died before it had reset the mark. R15: the mark is invalid, as after a failed
  // sync; then its epoch is none.
  if (mark->epoch() != state.epoch) return std::nullopt;
  const absl::StatusOr<uint64_t> complaints = backing.ComplaintsOf(context.root_fd);
  if (!complaints.ok() || *complaints != mark->complaints()) return std::nullopt;  // R16
  return mark->applied();
}

absl::Status NoteSameLife(const ReplayContext& context, StateFile* state) {
  SALIUS_ASSIGN_OR_RETURN(const std::optional<Seq> applied, SyncSameLife(context, state->state()));
  if (!applied.has_value() || *applied <= state->state().checkpoint) return absl::OkStatus();
  VolumeState next = state->state();
  next.checkpoint = *applied;
  SALIUS_RETURN_IF_ERROR(state->Write(next));
  return context.step(RecoveryStep::kSameLifeNoted);
}

VolumeState CommittedState(const VolumeState& state, Epoch next_epoch, Seq decided,
                           FileId max_file_id, uint64_t last_timestamp_ns) {
  VolumeState next = state;  // R81
  next.open = false;
  next.epoch = next_epoch;
  next.mode = Mode::kLocal;
  next.members.clear();
  next.mount_id = 0;
  next.checkpoint = 0;  // of next_epoch, which has no records
  next.recovered_epoch = state.epoch;
  next.recovered_seq = decided;
  next.file_id_limit = std::max(state.file_id_limit, max_file_id + 1);
  next.last_timestamp_ns = std::max(state.last_timestamp_ns, last_timestamp_ns);
  return next;
}

}  // namespace salius::recovery
