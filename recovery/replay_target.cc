#include "recovery/replay_target.h"

#include "common/file.h"
#include "common/log.h"
#include "recovery/commit.h"

namespace salius::recovery {
namespace {

class FileSystemTarget : public ReplayTarget {
 public:
  absl::Status Check(const ReplayContext& context, const ReplayPlan& plan) override {
    return CheckReplay(context, plan);
  }
  absl::Status Replay(const ReplayContext& context, const ReplayPlan& plan) override {
    return recovery::Replay(context, plan);
  }
  absl::Status Sync(const ReplayContext& context) override {
    return SyncVolume(context.root_fd, context.salius_fd);
  }
  void CleanUp(const ReplayContext& context, const VolumeConfig& config) override {
    if (const absl::Status cleaned = CleanSaliusDir(context); !cleaned.ok()) {
      SLOG_WARN("leftovers in .salius stay: {}", cleaned.ToString());
    }
    const absl::Status ballast = RestoreBallast(context.salius_fd, config.ballast_bytes);
    context.report->ballast_restored = ballast.ok();
    if (!ballast.ok()) {
      SLOG_WARN("no room for the ballast that a recovery may need: {}", ballast.ToString());
    }
  }
};

}  // namespace

ReplayTarget& BackingFileSystem() {
  static FileSystemTarget* const target = new FileSystemTarget;
  return *target;
}

}  // namespace salius::recovery
