// The plan of a direct volume's replay: the records of each file that the disk may lack, in order
// (docs/recovery.md, cases R87 to R89). A direct volume logs only data: its names and attributes
// belong to the local file system.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "recovery/agree/record_set.h"

namespace salius::recovery {

struct DirectFile {
  std::vector<const RecordView*> ops;  // writes and truncations, ascending
  uint64_t bytes = 0;                  // that the writes among them carry
};

struct DirectPlan {
  std::map<FileId, DirectFile> files;  // each with at least one operation
  uint64_t on_disk = 0;                // records that an "on disk up to" covers
  FileId max_file_id = kNoFileId;
  uint64_t last_timestamp_ns = 0;

  uint64_t bytes() const;
};

// Plans `records`, ascending by seq; they outlive the plan. DATA_LOSS, with the record, when one of
// them is of a kind that no direct volume holds, or impossible.
absl::StatusOr<DirectPlan> PlanDirect(absl::Span<const RecordView* const> records);

}  // namespace salius::recovery
