#include "recovery/replay/replay_target.h"

#include <fcntl.h>

#include "common/check.h"
#include "common/log.h"
#include "recovery/replay/commit.h"
#include "storage/volume_config.h"

namespace salius::recovery {
namespace {

class FileSystemTarget : public ReplayTarget {
 public:
  absl::Status Check(const ReplayContext& context, const ReplayPlan& plan) override {
    return CheckReplay(context, plan);
  }
  ReplayResult Replay(const ReplayContext& context, const ReplayPlan& plan) override {
    return recovery::Replay(context, plan);
  }
  absl::Status Sync(const ReplayContext& context) override {
    Backing& backing = *context.backing;
    SALIUS_ASSIGN_OR_RETURN(const BackingFd state,
                            backing.OpenAt(context.salius_fd, kStateFileName, O_RDONLY));
    SALIUS_RETURN_IF_ERROR(SyncVolume(backing, context.root_fd, state.get()));
    return context.ext4 == nullptr ? absl::OkStatus() : context.ext4->Check();
  }
  void CleanUp(const ReplayContext& context, const VolumeConfig& config) override {
    if (const absl::Status cleaned = CleanSaliusDir(context); !cleaned.ok()) {
      SLOG_WARN("leftovers in .salius stay: {}", cleaned.ToString());
    }
    context.report->ballast_restored =
        RestoreBallast(*context.backing, context.salius_fd, config.ballast_bytes).ok();
  }
};

}  // namespace

ReplayTarget& BackingFileSystem() {
  static FileSystemTarget* const target = new FileSystemTarget;
  return *target;
}

}  // namespace salius::recovery
