#include "recovery/agree/record_set.h"

#include <utility>

#include "common/check.h"
#include "common/crc32c.h"

namespace salius::recovery {

absl::Status RecordSet::Add(std::string buffer) {
  if (buffer.empty()) return absl::OkStatus();
  if (buffer.size() < kRecordHeaderBytes) {
    return absl::OutOfRangeError("less than one record");
  }
  const size_t views_before = views_.size();
  buffers_.push_back(std::move(buffer));
  const std::string& kept = buffers_.back();
  size_t at = 0;
  while (at < kept.size()) {
    absl::StatusOr<RecordHeader> header = DecodeRecord(AsBytes(std::string_view(kept).substr(at)));
    if (!header.ok()) {
      views_.resize(views_before);
      buffers_.pop_back();
      return header.status();
    }
    views_.push_back(RecordView{*header, kept.data() + at});
    at += header->total_bytes();
  }
  bytes_ += kept.size();
  return absl::OkStatus();
}

void RecordSet::Append(RecordSet other) {
  views_.insert(views_.end(), other.views_.begin(), other.views_.end());
  for (std::string& buffer : other.buffers_) buffers_.push_back(std::move(buffer));
  bytes_ += other.bytes_;
}

uint32_t DigestOf(absl::Span<const RecordView* const> records) {
  uint32_t digest = 0;
  for (const RecordView* record : records) {
    uint8_t checks[8];
    StoreU32(checks, LoadU32(record->bytes + kRecordHeaderBytes - 4));
    StoreU32(checks + 4, record->header.body_crc);
    digest = Crc32cExtend(digest, checks);
  }
  return digest;
}

}  // namespace salius::recovery
