#include "transport/packer.h"

#include <algorithm>
#include <optional>

#include "common/check.h"
#include "common/limits.h"
#include "common/load_store.h"
#include "log/record.h"
#include "proto/sealed_frame.h"
#include "transport/compact_records.h"
#include "transport/datagram_channel.h"

namespace salius {
namespace {

// The most records in one datagram: it has a header and two parts for each record.
constexpr size_t kMaxRecordsTogether = (kMaxParts - 1) / 2;

iovec Part(absl::Span<const uint8_t> bytes) {
  return iovec{const_cast<uint8_t*>(bytes.data()), bytes.size()};  // iovec is not const-correct
}

// Returns the header of a record that can be in a compact frame. A stray write of a process may have
// damaged one of a direct volume: it goes as it is, and the replicas refuse it.
std::optional<RecordHeader> Codable(const FrameHeader& frame, const RecordBytes& record) {
  const absl::StatusOr<RecordHeader> decoded = DecodeRecordHeader(record.header);
  if (!decoded.ok() || decoded->volume != frame.volume || decoded->epoch != frame.epoch ||
      decoded->body_bytes != record.body.size()) {
    return std::nullopt;
  }
  return *decoded;
}

}  // namespace

void Packer::Pack(const FrameHeader& header, absl::Span<const RecordBytes> records,
                  size_t datagram_bytes, Coding coding) {
  SALIUS_CHECK(datagram_bytes + kSealBytes >= kDatagramPayloadMin);
  frames_.clear();
  parts_.clear();
  compact_.clear();
  const bool compact = coding == Coding::kCompact;
  // The parts point into it: it must not move.
  if (compact) compact_.reserve(records.size() * kMostCompactHeader);
  const size_t room = datagram_bytes - kFrameHeaderBytes;
  if (records.empty()) PackProbe(header);
  while (!records.empty()) {
    size_t packed = 1;
    if (compact && records[0].body.size() + kMostCompactHeader <= room &&
        Codable(header, records[0]).has_value()) {
      packed = PackCompact(header, records, room);
    } else if (records[0].size() > room) {
      PackFragments(header, records[0], room);
    } else {
      // A replica drops what is behind a damaged record in its frame.
      packed = PackWhole(header, compact ? records.first(1) : records, room);
    }
    records.remove_prefix(packed);
  }
  // The frames do not move any more.
  for (Frame& frame : frames_) {
    parts_[frame.first_part] = Part(absl::MakeConstSpan(frame.head).first(frame.head_bytes));
  }
}

// Begins a datagram. Its first part, the header, is set when all are packed.
Packer::Frame& Packer::Begin() {
  Frame& frame = frames_.emplace_back();
  frame.head_bytes = kFrameHeaderBytes;
  frame.first_part = parts_.size();
  parts_.push_back({});
  return frame;
}

void Packer::End(Frame& frame) { frame.part_count = parts_.size() - frame.first_part; }

void Packer::PackProbe(const FrameHeader& header) {
  Frame& frame = Begin();
  FrameHeader probe = header;
  probe.type = FrameType::kProbe;
  probe.count = 0;
  probe.payload_bytes = 0;
  EncodeFrameHeader(probe, frame.head.data());
  End(frame);
}

size_t Packer::PackWhole(const FrameHeader& header, absl::Span<const RecordBytes> records,
                         size_t room) {
  Frame& frame = Begin();
  size_t bytes = 0;
  uint16_t count = 0;
  for (; count < records.size() && count < kMaxRecordsTogether; ++count) {
    const RecordBytes& record = records[count];
    if (count > 0 && bytes + record.size() > room) break;
    parts_.push_back(Part(record.header));
    if (!record.body.empty()) parts_.push_back(Part(record.body));
    bytes += record.size();
  }
  FrameHeader whole = header;
  whole.type = FrameType::kRecords;
  whole.count = count;
  whole.payload_bytes = static_cast<uint32_t>(bytes);
  EncodeFrameHeader(whole, frame.head.data());
  End(frame);
  return count;
}

size_t Packer::PackCompact(const FrameHeader& header, absl::Span<const RecordBytes> records,
                           size_t room) {
  Frame& frame = Begin();
  RecordHeader before = BeforeFirst(header);
  size_t bytes = 0;
  uint16_t count = 0;
  for (; count < records.size() && count < kMaxRecordsTogether; ++count) {
    const RecordBytes& record = records[count];
    const std::optional<RecordHeader> decoded = Codable(header, record);
    if (!decoded.has_value()) break;
    const size_t at = compact_.size();
    compact_.resize(at + kMostCompactHeader);
    const size_t head_bytes = EncodeCompactHeader(
        before, *decoded, LoadU32(&record.header[kRecordHeaderBytes - sizeof(uint32_t)]),
        &compact_[at]);
    compact_.resize(at + head_bytes);
    if (bytes + head_bytes + record.body.size() > room) {
      compact_.resize(at);
      break;
    }
    parts_.push_back(Part({&compact_[at], head_bytes}));
    if (!record.body.empty()) parts_.push_back(Part(record.body));
    bytes += head_bytes + record.body.size();
    before = *decoded;
  }
  FrameHeader compact = header;
  compact.type = FrameType::kCompact;
  compact.count = count;
  compact.payload_bytes = static_cast<uint32_t>(bytes);
  EncodeFrameHeader(compact, frame.head.data());
  End(frame);
  return count;
}

void Packer::PackFragments(const FrameHeader& header, const RecordBytes& record, size_t room) {
  const size_t piece_bytes = room - kFragmentHeaderBytes;
  for (size_t offset = 0; offset < record.size(); offset += piece_bytes) {
    const size_t length = std::min(piece_bytes, record.size() - offset);
    Frame& frame = Begin();
    size_t left = length;
    if (offset < record.header.size()) {
      const auto piece = record.header.subspan(offset, left);
      parts_.push_back(Part(piece));
      left -= piece.size();
    }
    if (left > 0) {
      const size_t at = std::max(offset, record.header.size()) - record.header.size();
      parts_.push_back(Part(record.body.subspan(at, left)));
    }
    FrameHeader fragment_frame = header;
    fragment_frame.type = FrameType::kFragment;
    fragment_frame.count = 0;
    fragment_frame.payload_bytes = static_cast<uint32_t>(kFragmentHeaderBytes + length);
    EncodeFrameHeader(fragment_frame, frame.head.data());
    FragmentHeader fragment;
    fragment.seq = record.seq;
    fragment.record_bytes = static_cast<uint32_t>(record.size());
    fragment.offset = static_cast<uint32_t>(offset);
    EncodeFragmentHeader(fragment, frame.head.data() + kFrameHeaderBytes);
    frame.head_bytes += kFragmentHeaderBytes;
    End(frame);
  }
}

}  // namespace salius
