#include "recovery/direct/direct_plan.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "log/record.h"

namespace salius::recovery {
namespace {

absl::Status Impossible(const RecordView& record, absl::string_view why) {
  return absl::DataLossError(
      absl::StrFormat("record %d (%s) of file %d: %s; a replica or the pinned log holds what this "
                      "volume never wrote",
                      record.seq(), OpName(record.header.op), record.header.file_id, why));
}

// R88: returns whether the record fills the place of one whose writer died.
bool IsVoid(const RecordHeader& header) {
  return header.op == Op::kOnDisk && header.file_id == kNoFileId;
}

// R87: checks one record.
absl::Status Check(const RecordView& record) {
  const RecordHeader& header = record.header;
  if (IsVoid(header)) return absl::OkStatus();
  switch (header.op) {
    case Op::kWrite:
      if (header.arg0 > static_cast<uint64_t>(INT64_MAX) - header.body_bytes) {
        return Impossible(record, "it ends beyond the largest file");
      }
      break;
    case Op::kTruncate:
      if (header.arg0 > static_cast<uint64_t>(INT64_MAX)) {
        return Impossible(record, "the size is beyond the largest file");
      }
      break;
    case Op::kOnDisk:
      if (header.arg0 >= header.seq) return Impossible(record, "it covers itself");
      break;
    default:
      return Impossible(record, "a direct volume has no records of this kind");
  }
  if (header.file_id == kNoFileId) return Impossible(record, "it names no file");
  return absl::OkStatus();
}

}  // namespace

uint64_t DirectPlan::bytes() const {
  uint64_t sum = 0;
  for (const auto& [id, file] : files) sum += file.bytes;
  return sum;
}

absl::StatusOr<DirectPlan> PlanDirect(absl::Span<const RecordView* const> records) {
  DirectPlan plan;
  std::map<FileId, Seq> on_disk_upto;
  for (const RecordView* record : records) {
    SALIUS_RETURN_IF_ERROR(Check(*record));
    const RecordHeader& header = record->header;
    plan.max_file_id = std::max(plan.max_file_id, header.file_id);
    plan.last_timestamp_ns = std::max(plan.last_timestamp_ns, header.timestamp_ns);
    if (header.op != Op::kOnDisk || IsVoid(header)) continue;
    Seq& upto = on_disk_upto[header.file_id];
    upto = std::max(upto, header.arg0);
  }
  for (const RecordView* record : records) {
    const RecordHeader& header = record->header;
    if (header.op != Op::kWrite && header.op != Op::kTruncate) continue;
    const auto upto = on_disk_upto.find(header.file_id);
    if (upto != on_disk_upto.end() && record->seq() <= upto->second) {  // R89
      ++plan.on_disk;
      continue;
    }
    DirectFile& file = plan.files[header.file_id];
    file.ops.push_back(record);
    if (header.op == Op::kWrite) file.bytes += header.body_bytes;
  }
  return plan;
}

}  // namespace salius::recovery
