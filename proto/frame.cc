#include "proto/frame.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/crc32c.h"
#include "common/limits.h"
#include "proto/frame_format.h"
#include "proto/layout.h"

namespace salius {
namespace {

using namespace frame_layout;  // NOLINT: offsets of this file's own formats

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError("frame: " + why);
}

absl::Status FaultOfHeader(FrameFault fault, absl::Span<const uint8_t> datagram,
                           const FrameHeader& header) {
  const uint8_t* const in = datagram.data();
  switch (fault) {
    case FrameFault::kShort:
      return absl::OutOfRangeError(absl::StrFormat("frame: %d bytes, a header has %d",
                                                   datagram.size(), kFrameHeaderBytes));
    case FrameFault::kMagic:
      return Malformed(
          absl::StrFormat("magic %08x is not a frame's", LoadU32(in + kFrameMagicAt)));
    case FrameFault::kChecksum:
      return absl::DataLossError("frame: header checksum does not match");
    case FrameFault::kVersion:
      return Malformed(absl::StrFormat("version %d, this program knows %d",
                                       LoadU8(in + kFrameVersionAt), kFrameVersion));
    case FrameFault::kType:
      return Malformed(absl::StrFormat("unknown type %d", LoadU8(in + kFrameTypeAt)));
    case FrameFault::kReserved:
      return Malformed("reserved bytes are not zero");
    case FrameFault::kMarks:
      return Malformed(absl::StrFormat("epoch %d, trim mark %d, durable mark %d, issued mark %d",
                                       header.epoch, header.trim_mark, header.durable_mark,
                                       header.issued_mark));
    case FrameFault::kLength:
      return Malformed(absl::StrFormat("header says %d bytes of payload, %d follow it",
                                       header.payload_bytes, datagram.size() - kFrameHeaderBytes));
    case FrameFault::kCount:
      return Malformed(absl::StrFormat("%d records in a frame of type %d", header.count,
                                       static_cast<int>(header.type)));
    default:
      const PayloadBounds bounds = BoundsOf(header);
      return Malformed(absl::StrFormat("payload of %d bytes, a frame of type %d has %d to %d",
                                       header.payload_bytes, static_cast<int>(header.type),
                                       bounds.least, bounds.most));
  }
}

absl::Status FaultOfAck(FrameFault fault, absl::Span<const uint8_t> payload, const AckBytes& ack) {
  const size_t good = ack.range_count;
  const auto held = [&] { return good == 0 ? ack.contiguous : ack.ranges[good - 1].last; };
  switch (fault) {
    case FrameFault::kShort:
      return absl::OutOfRangeError(
          absl::StrFormat("ack: %d bytes, at least %d needed", payload.size(), kAckFixedBytes));
    case FrameFault::kChecksum:
      return absl::DataLossError("ack: checksum does not match");
    case FrameFault::kReserved:
      return Malformed(absl::StrFormat("ack: unknown flags %04x", ack.flags));
    case FrameFault::kLength:
      return Malformed(absl::StrFormat("ack: %d ranges in %d bytes", good, payload.size()));
    case FrameFault::kBase:
      return Malformed(
          absl::StrFormat("ack: contiguous %d below base %d", ack.contiguous, ack.base));
    case FrameFault::kRange:
      return Malformed(absl::StrFormat("ack: range [%d, %d] after %d", ack.ranges[good].first,
                                       ack.ranges[good].last, held()));
    default:
      return Malformed(absl::StrFormat("ack: base %d, holds up to %d, trimmed %d, promise %d",
                                       ack.base, held(), ack.trimmed, ack.promise_epoch));
  }
}

}  // namespace

absl::StatusOr<FrameHeader> DecodeFrameHeader(absl::Span<const uint8_t> datagram) {
  FrameHeader header;
  const uint8_t* const in = datagram.data();
  const FrameFault fault = DecodeFrameHeader(in, datagram.size(), &header);
  if (fault == FrameFault::kNone) return header;
  return FaultOfHeader(fault, datagram, header);
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
  AckBytes bytes;
  const FrameFault fault = DecodeAck(payload.data(), payload.size(), &bytes);
  if (fault != FrameFault::kNone) return FaultOfAck(fault, payload, bytes);
  AckPayload ack;
  ack.incarnation = bytes.incarnation;
  ack.base = bytes.base;
  ack.contiguous = bytes.contiguous;
  ack.trimmed = bytes.trimmed;
  ack.free_bytes = bytes.free_bytes;
  ack.promise_epoch = bytes.promise_epoch;
  ack.flags = bytes.flags;
  ack.ranges.assign(bytes.ranges, bytes.ranges + bytes.range_count);
  return ack;
}

}  // namespace salius
