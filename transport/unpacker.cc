#include "transport/unpacker.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "transport/compact_records.h"

namespace salius {
namespace {

Unpacked UnpackCompact(
    const FrameHeader& frame, absl::Span<const uint8_t> payload,
    absl::FunctionRef<void(const RecordHeader& header, absl::Span<const uint8_t> bytes)> take) {
  thread_local std::vector<uint8_t> record;
  RecordHeader before = BeforeFirst(frame);
  for (uint16_t i = 0; i < frame.count; ++i) {
    if (record.size() < kRecordHeaderBytes) record.resize(kRecordHeaderBytes);
    RecordHeader header;
    const std::optional<size_t> used =
        DecodeCompactHeader(before, payload, &header, record.data());
    if (!used.has_value() || header.body_bytes > payload.size() - *used) {
      return Unpacked::kCorruptRecord;
    }
    if (record.size() < header.total_bytes()) record.resize(header.total_bytes());
    if (header.body_bytes > 0) {
      std::memcpy(&record[kRecordHeaderBytes], &payload[*used], header.body_bytes);
    }
    const auto bytes = absl::MakeConstSpan(record).first(header.total_bytes());
    if (!DecodeRecord(bytes).ok()) return Unpacked::kCorruptRecord;
    payload.remove_prefix(*used + header.body_bytes);
    take(header, bytes);
    before = header;
  }
  return payload.empty() ? Unpacked::kAll : Unpacked::kTrailingBytes;
}

}  // namespace

Unpacked UnpackRecords(
    const FrameHeader& frame, absl::Span<const uint8_t> payload,
    absl::FunctionRef<void(const RecordHeader& header, absl::Span<const uint8_t> bytes)> take) {
  if (frame.type == FrameType::kCompact) return UnpackCompact(frame, payload, take);
  for (uint16_t i = 0; i < frame.count; ++i) {
    const absl::StatusOr<RecordHeader> record = DecodeRecord(payload);
    // It is not known either where the next record would begin.
    if (!record.ok()) return Unpacked::kCorruptRecord;
    const absl::Span<const uint8_t> bytes = payload.first(record->total_bytes());
    payload.remove_prefix(bytes.size());
    take(*record, bytes);
  }
  return payload.empty() ? Unpacked::kAll : Unpacked::kTrailingBytes;
}

bool PieceRuns::Add(uint32_t begin, uint32_t end) {
  // The runs that touch or overlap [begin, end) become one with it.
  const auto first = std::lower_bound(runs_.begin(), runs_.end(), begin,
                                      [](const auto& run, uint32_t at) { return run.second < at; });
  auto last = first;
  uint32_t absorbed = 0;
  for (; last != runs_.end() && last->first <= end; ++last) {
    absorbed += last->second - last->first;
    begin = std::min(begin, last->first);
    end = std::max(end, last->second);
  }
  if (first == last && runs_.size() >= kMaxRuns) return false;
  bytes_ += end - begin - absorbed;
  if (first == last) {
    runs_.insert(first, {begin, end});
  } else {
    *first = {begin, end};
    runs_.erase(first + 1, last);
  }
  return true;
}

}  // namespace salius
