#include "proto/frame_format.h"

#include <algorithm>
#include <cstring>

#include "common/crc32c_bytes.h"
#include "common/limits.h"
#include "common/load_store.h"
#include "proto/layout.h"

namespace salius {

using namespace frame_layout;  // NOLINT: offsets of this file's own formats

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
  StoreU32(out + kFrameCrcAt, Crc32cBytes(0, out, kFrameCrcAt));
}

void EncodeFragmentHeader(const FragmentHeader& header, uint8_t* out) {
  std::memset(out, 0, kFragmentHeaderBytes);
  StoreU64(out + kFragmentSeqAt, header.seq);
  StoreU32(out + kFragmentRecordBytesAt, header.record_bytes);
  StoreU32(out + kFragmentOffsetAt, header.offset);
  StoreU32(out + kFragmentCrcAt, Crc32cBytes(0, out, kFragmentCrcAt));
}

PayloadBounds BoundsOf(const FrameHeader& header) {
  constexpr size_t kMost = kDatagramPayloadLoopback - kFrameHeaderBytes;
  switch (header.type) {
    case FrameType::kRecords:
      return {header.count * kLeastRecordBytes, kMost};
    case FrameType::kCompact:
      return {header.count * kLeastCompactBytes, kMost};
    case FrameType::kFragment:
      return {kFragmentHeaderBytes + 1, kMost};
    case FrameType::kAck:
      return {kAckFixedBytes, kMaxAckBytes};
    case FrameType::kProbe:
      break;
  }
  return {0, 0};
}

FrameFault DecodeFrameHeader(const uint8_t* in, size_t size, FrameHeader* header) {
  if (size < kFrameHeaderBytes) return FrameFault::kShort;
  if (LoadU32(in + kFrameMagicAt) != kFrameMagic) return FrameFault::kMagic;
  if (LoadU32(in + kFrameCrcAt) != Crc32cBytes(0, in, kFrameCrcAt)) return FrameFault::kChecksum;
  if (LoadU8(in + kFrameVersionAt) != kFrameVersion) return FrameFault::kVersion;
  const uint8_t type = LoadU8(in + kFrameTypeAt);
  if (type < static_cast<uint8_t>(FrameType::kRecords) ||
      type > static_cast<uint8_t>(FrameType::kCompact)) {
    return FrameFault::kType;
  }
  if (LoadU32(in + kFrameReserved0At) != 0 || LoadU32(in + kFrameReserved1At) != 0) {
    return FrameFault::kReserved;
  }
  header->type = static_cast<FrameType>(type);
  header->count = LoadU16(in + kFrameCountAt);
  header->payload_bytes = LoadU32(in + kFramePayloadBytesAt);
  std::memcpy(header->volume.bytes.data(), in + kFrameVolumeAt, header->volume.bytes.size());
  header->epoch = LoadU64(in + kFrameEpochAt);
  header->session = LoadU64(in + kFrameSessionAt);
  header->send_time_ns = LoadU64(in + kFrameSendTimeAt);
  header->trim_mark = LoadU64(in + kFrameTrimAt);
  header->durable_mark = LoadU64(in + kFrameDurableAt);
  header->issued_mark = LoadU64(in + kFrameIssuedAt);
  if (std::max({header->epoch, header->trim_mark, header->durable_mark, header->issued_mark}) >
      kMaxCount) {
    return FrameFault::kMarks;
  }
  if (header->payload_bytes != size - kFrameHeaderBytes) return FrameFault::kLength;
  if (HasRecords(header->type) != (header->count > 0)) return FrameFault::kCount;
  const PayloadBounds bounds = BoundsOf(*header);
  const bool fits = header->payload_bytes >= bounds.least && header->payload_bytes <= bounds.most;
  return fits ? FrameFault::kNone : FrameFault::kPayload;
}

FrameFault DecodeAck(const uint8_t* in, size_t size, AckBytes* ack) {
  if (size < kAckFixedBytes) return FrameFault::kShort;
  // The checksum's own four bytes are zero while it is computed.
  static constexpr uint8_t kNoCrc[4] = {};
  uint32_t crc = Crc32cBytes(0, in, kAckCrcAt);
  crc = Crc32cBytes(crc, kNoCrc, sizeof(kNoCrc));
  crc = Crc32cBytes(crc, in + kAckFixedBytes, size - kAckFixedBytes);
  if (LoadU32(in + kAckCrcAt) != crc) return FrameFault::kChecksum;

  ack->incarnation = LoadU64(in + kAckIncarnationAt);
  ack->base = LoadU64(in + kAckBaseAt);
  ack->contiguous = LoadU64(in + kAckContiguousAt);
  ack->trimmed = LoadU64(in + kAckTrimmedAt);
  ack->free_bytes = LoadU64(in + kAckFreeBytesAt);
  ack->promise_epoch = LoadU64(in + kAckPromiseAt);
  ack->flags = LoadU16(in + kAckFlagsAt);
  ack->range_count = LoadU16(in + kAckRangeCountAt);
  const size_t ranges = ack->range_count;
  if ((ack->flags & ~kAllAckFlags) != 0) return FrameFault::kReserved;
  if (ranges > kMaxAckRanges || size != kAckFixedBytes + kAckRangeBytes * ranges) {
    return FrameFault::kLength;
  }
  if (ack->base > 0 && ack->contiguous < ack->base - 1) return FrameFault::kBase;
  Seq held = ack->contiguous;
  for (size_t i = 0; i < ranges; ++i) {
    SeqRange& range = ack->ranges[i];
    range.first = LoadU64(in + kAckFixedBytes + kAckRangeBytes * i);
    range.last = LoadU64(in + kAckFixedBytes + kAckRangeBytes * i + 8);
    // A range that touches the one before would be part of it; the first may follow `contiguous`
    // directly.
    const bool above = i == 0 ? range.first > held : range.first > held && range.first - held > 1;
    if (!above || range.last < range.first) {
      ack->range_count = static_cast<uint16_t>(i);
      return FrameFault::kRange;
    }
    held = range.last;
  }
  const bool possible = std::max({ack->base, held, ack->trimmed, ack->promise_epoch}) <= kMaxCount;
  return possible ? FrameFault::kNone : FrameFault::kMarks;
}

}  // namespace salius
