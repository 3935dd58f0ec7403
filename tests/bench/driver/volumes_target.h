// Many sessions with one replica, each of a volume of its own with the engine that the mount uses.
// One operation is one durable record of a volume. Applied records go nowhere: the load is on the
// replica.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "client/cli/bench_target.h"
#include "client/session/pipeline.h"
#include "storage/volume_config.h"

namespace salius::bench {

class VolumesTarget : public cli::ClosedLoop {
 public:
  struct Plan {
    std::string directory;  // where the volumes are made
    std::string replica;    // HOST:PORT
    uint64_t size = 4096;   // bytes per record
    uint64_t writers = 1;   // volumes
    uint64_t log_max = 1 << 20;  // bytes of each one's log; a checkpoint begins when half is used
    bool keep = false;           // no checkpoint ends: the log grows until it is full
  };
  // Returns when all volumes are in mode replicated. DEADLINE_EXCEEDED when they are not within two
  // minutes.
  static absl::StatusOr<std::unique_ptr<VolumesTarget>> Make(Plan plan);
  ~VolumesTarget() override;  // the volumes are discarded, not closed

 protected:
  // Returns FAILED_PRECONDITION when the volume is not in mode replicated.
  absl::Status Prepare(size_t writer) override;
  absl::Status Operate(size_t writer) override;

 private:
  class NullSink : public ApplySink {
   public:
    absl::StatusOr<size_t> Apply(absl::Span<const RecordRef> records) override {
      return records.size();
    }
    absl::Status SyncApplied() override {
      if (keep) end.WaitForNotification();
      return absl::OkStatus();
    }
    bool keep = false;
    absl::Notification end;
  };
  struct Volume {
    VolumeDir dir;
    NullSink sink;
    std::unique_ptr<RecordStream> stream;
  };
  explicit VolumesTarget(Plan plan) : ClosedLoop(plan.writers), plan_(std::move(plan)) {}
  absl::Status Start(const std::string& path, Volume& volume) const;

  const Plan plan_;
  std::vector<std::unique_ptr<Volume>> volumes_;
};

}  // namespace salius::bench
