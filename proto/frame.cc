#include "proto/frame.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "common/limits.h"
#include "proto/layout.h"

namespace salius {
namespace {

using namespace frame_layout;  // NOLINT: offsets of this file's own formats

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError("frame: " + why);
}

// Refuses a payload that a frame of this type may not carry.
absl::Status CheckPayload(const FrameHeader& header) {
  const bool records = header.type == FrameType::kRecords;
  if (records != (header.count > 0)) {
    return Malformed(absl::StrFormat("%d records in a frame of type %d", header.count,
                                     static_cast<int>(header.type)));
  }
  size_t least = 0;
  size_t most = kDatagramPayloadLoopback - kFrameHeaderBytes;
  switch (header.type) {
    case FrameType::kRecords:
      least = header.count * kLeastRecordBytes;
      break;
    case FrameType::kFragment:
      least = kFragmentHeaderBytes + 1;
      break;
    case FrameType::kAck:
      least = kAckFixedBytes;
      most = kMaxAckBytes;
      break;
    case FrameType::kProbe:
      most = 0;
      break;
  }
  if (header.payload_bytes < least || header.payload_bytes > most) {
    return Malformed(absl::StrFormat("payload of %d bytes, a frame of type %d has %d to %d",
                                     header.payload_bytes, static_cast<int>(header.type), least,
                                     most));
  }
  return absl::OkStatus();
}

}  // namespace

void EncodeFrameHeader(const FrameHeader& header, uint8_t* out) {
  std::memset(out, 0, kFrameHeaderBytes);
  StoreU32(out + kFrameMagicAt, kFrameMagic);
  StoreU8(out + kFrameVersionAt, kFrameVersion);
  StoreU8(out + kFrameTypeAt, static_cast<uint8_t>(header.type));
  StoreU16(out + kFrameCountAt, header.count);
  StoreU32(out + kFramePayloadBytesAt, header.payload_bytes);
  std::memcpy(out + kFrameVolumeAt, header.volume.bytes.data(), header.volume.bytes.size());
  StoreU64(out + kFrameEpochAt, header.epoch);
  StoreU64(out + kFrameSessionAt, header.session);
  StoreU64(out + kFrameSendTimeAt, header.send_time_ns);
  StoreU64(out + kFrameTrimAt, header.trim_mark);
  StoreU64(out + kFrameDurableAt, header.durable_mark);
  StoreU64(out + kFrameIssuedAt, header.issued_mark);
  StoreU32(out + kFrameCrcAt, Crc32c({out, kFrameCrcAt}));
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::Span<const uint8_t> datagram) {
  if (datagram.size() < kFrameHeaderBytes) {
    return absl::OutOfRangeError(
        absl::StrFormat("frame: %d bytes, a header has %d", datagram.size(), kFrameHeaderBytes));
  }
  const uint8_t* const in = datagram.data();
  if (LoadU32(in + kFrameMagicAt) != kFrameMagic) {
    return Malformed(absl::StrFormat("magic %08x is not a frame's", LoadU32(in + kFrameMagicAt)));
  }
  if (LoadU32(in + kFrameCrcAt) != Crc32c({in, kFrameCrcAt})) {
    return absl::DataLossError("frame: header checksum does not match");
  }
  if (LoadU8(in + kFrameVersionAt) != kFrameVersion) {
    return Malformed(absl::StrFormat("version %d, this program knows %d",
                                     LoadU8(in + kFrameVersionAt), kFrameVersion));
  }
  const uint8_t type = LoadU8(in + kFrameTypeAt);
  if (type < static_cast<uint8_t>(FrameType::kRecords) ||
      type > static_cast<uint8_t>(FrameType::kProbe)) {
    return Malformed(absl::StrFormat("unknown type %d", type));
  }
  if (LoadU32(in + kFrameReserved0At) != 0 || LoadU32(in + kFrameReserved1At) != 0) {
    return Malformed("reserved bytes are not zero");
  }
  FrameHeader header;
  header.type = static_cast<FrameType>(type);
  header.count = LoadU16(in + kFrameCountAt);
  header.payload_bytes = LoadU32(in + kFramePayloadBytesAt);
  std::memcpy(header.volume.bytes.data(), in + kFrameVolumeAt, header.volume.bytes.size());
  header.epoch = LoadU64(in + kFrameEpochAt);
  header.session = LoadU64(in + kFrameSessionAt);
  header.send_time_ns = LoadU64(in + kFrameSendTimeAt);
  header.trim_mark = LoadU64(in + kFrameTrimAt);
  header.durable_mark = LoadU64(in + kFrameDurableAt);
  header.issued_mark = LoadU64(in + kFrameIssuedAt);
  if (std::max({header.epoch, header.trim_mark, header.durable_mark, header.issued_mark}) >
      kMaxCount) {
    return Malformed(absl::StrFormat("epoch %d, trim mark %d, durable mark %d, issued mark %d",
                                     header.epoch, header.trim_mark, header.durable_mark,
                                     header.issued_mark));
  }
  if (header.payload_bytes != datagram.size() - kFrameHeaderBytes) {
    return Malformed(absl::StrFormat("header says %d bytes of payload, %d follow it",
                                     header.payload_bytes, datagram.size() - kFrameHeaderBytes));
  }
  if (absl::Status status = CheckPayload(header); !status.ok()) return status;
  return header;
}

void EncodeFragmentHeader(const FragmentHeader& header, uint8_t* out) {
  std::memset(out, 0, kFragmentHeaderBytes);
  StoreU64(out + kFragmentSeqAt, header.seq);
  StoreU32(out + kFragmentRecordBytesAt, header.record_bytes);
  StoreU32(out + kFragmentOffsetAt, header.offset);
  StoreU32(out + kFragmentCrcAt, Crc32c({out, kFragmentCrcAt}));
}

absl::StatusOr<FragmentHeader> DecodeFragmentHeader(absl::Span<const uint8_t> payload) {
  if (payload.size() <= kFragmentHeaderBytes) {
    return absl::OutOfRangeError(
        absl::StrFormat("fragment: %d bytes, a header and a piece have more than %d",
                        payload.size(), kFragmentHeaderBytes));
  }
  const uint8_t* const in = payload.data();
  if (LoadU32(in + kFragmentCrcAt) != Crc32c({in, kFragmentCrcAt})) {
    return absl::DataLossError("fragment: header checksum does not match");
  }
  if (LoadU32(in + kFragmentReservedAt) != 0) return Malformed("fragment: reserved bytes not zero");
  FragmentHeader header;
  header.seq = LoadU64(in + kFragmentSeqAt);
  header.record_bytes = LoadU32(in + kFragmentRecordBytesAt);
  header.offset = LoadU32(in + kFragmentOffsetAt);
  const uint64_t piece = payload.size() - kFragmentHeaderBytes;
  const uint64_t end = header.offset + piece;
  if (header.seq == 0 || header.seq > kMaxCount) {
    return Malformed(absl::StrFormat("fragment of seq %d", header.seq));
  }
  if (header.record_bytes < kLeastRecordBytes ||
      header.record_bytes > kLeastRecordBytes + kMaxRecordBody) {
    return Malformed(absl::StrFormat("fragment of a record of %d bytes", header.record_bytes));
  }
  if (end > header.record_bytes) {
    return Malformed(absl::StrFormat("fragment [%d, %d) of a record of %d bytes", header.offset,
                                     end, header.record_bytes));
  }
  // All pieces but the last are equally long. So a piece that is not the last has an offset that is
  // a multiple of its own length.
  if (end < header.record_bytes && header.offset % piece != 0) {
    return Malformed(absl::StrFormat("fragment of %d bytes at %d", piece, header.offset));
  }
  return header;
}

size_t EncodeAckPayload(const AckPayload& ack, uint8_t* out) {
  const size_t ranges = std::min(ack.ranges.size(), kMaxAckRanges);
  const size_t size = kAckFixedBytes + kAckRangeBytes * ranges;
  std::memset(out, 0, size);
  StoreU64(out + kAckIncarnationAt, ack.incarnation);
  StoreU64(out + kAckBaseAt, ack.base);
  StoreU64(out + kAckContiguousAt, ack.contiguous);
  StoreU64(out + kAckTrimmedAt, ack.trimmed);
  StoreU64(out + kAckFreeBytesAt, ack.free_bytes);
  StoreU64(out + kAckPromiseAt, ack.promise_epoch);
  StoreU16(out + kAckFlagsAt, ack.flags);
  StoreU16(out + kAckRangeCountAt, static_cast<uint16_t>(ranges));
  for (size_t i = 0; i < ranges; ++i) {
    StoreU64(out + kAckFixedBytes + kAckRangeBytes * i, ack.ranges[i].first);
    StoreU64(out + kAckFixedBytes + kAckRangeBytes * i + 8, ack.ranges[i].last);
  }
  // The checksum's own four bytes are zero while it is computed.
  StoreU32(out + kAckCrcAt, Crc32c({out, size}));
  return size;
}

absl::StatusOr<AckPayload> DecodeAckPayload(absl::Span<const uint8_t> payload) {
  if (payload.size() < kAckFixedBytes) {
    return absl::OutOfRangeError(
        absl::StrFormat("ack: %d bytes, at least %d needed", payload.size(), kAckFixedBytes));
  }
  const uint8_t* const in = payload.data();
  static constexpr uint8_t kNoCrc[4] = {};
  uint32_t crc = Crc32c(payload.first(kAckCrcAt));
  crc = Crc32cExtend(crc, kNoCrc);
  crc = Crc32cExtend(crc, payload.subspan(kAckFixedBytes));
  if (LoadU32(in + kAckCrcAt) != crc) return absl::DataLossError("ack: checksum does not match");

  AckPayload ack;
  ack.incarnation = LoadU64(in + kAckIncarnationAt);
  ack.base = LoadU64(in + kAckBaseAt);
  ack.contiguous = LoadU64(in + kAckContiguousAt);
  ack.trimmed = LoadU64(in + kAckTrimmedAt);
  ack.free_bytes = LoadU64(in + kAckFreeBytesAt);
  ack.promise_epoch = LoadU64(in + kAckPromiseAt);
  ack.flags = LoadU16(in + kAckFlagsAt);
  const size_t ranges = LoadU16(in + kAckRangeCountAt);
  if ((ack.flags & ~kAllAckFlags) != 0) {
    return Malformed(absl::StrFormat("ack: unknown flags %04x", ack.flags));
  }
  if (ranges > kMaxAckRanges || payload.size() != kAckFixedBytes + kAckRangeBytes * ranges) {
    return Malformed(absl::StrFormat("ack: %d ranges in %d bytes", ranges, payload.size()));
  }
  if (ack.base > 0 && ack.contiguous < ack.base - 1) {
    return Malformed(absl::StrFormat("ack: contiguous %d below base %d", ack.contiguous, ack.base));
  }
  ack.ranges.reserve(ranges);
  Seq held = ack.contiguous;
  for (size_t i = 0; i < ranges; ++i) {
    SeqRange range;
    range.first = LoadU64(in + kAckFixedBytes + kAckRangeBytes * i);
    range.last = LoadU64(in + kAckFixedBytes + kAckRangeBytes * i + 8);
  // A range that touches the one before would be part of it; the first may follow `contiguous`
  // directly.
    const bool above = i == 0 ? range.first > held : range.first > held && range.first - held > 1;
    if (!above || range.last < range.first) {
      return Malformed(
          absl::StrFormat("ack: range [%d, %d] after %d", range.first, range.last, held));
    }
    held = range.last;
    ack.ranges.push_back(range);
  }
  if (std::max({ack.base, held, ack.trimmed, ack.promise_epoch}) > kMaxCount) {
    return Malformed(absl::StrFormat("ack: base %d, holds up to %d, trimmed %d, promise %d",
                                     ack.base, held, ack.trimmed, ack.promise_epoch));
  }
  return ack;
}

}  // namespace salius
