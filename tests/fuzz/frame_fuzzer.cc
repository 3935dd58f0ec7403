// Decodes datagrams: frame header, fragment header, acknowledgement. Each accepted one encodes to
// the same bytes.
#include "proto/frame.h"

#include "common/check.h"
#include "proto/layout.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

void FuzzFragment(std::string_view payload) {
  const auto header = DecodeFragmentHeader(AsBytes(payload));
  if (!header.ok()) return;
  SALIUS_CHECK(header->offset + payload.size() - kFragmentHeaderBytes <= header->record_bytes);
  std::string again(kFragmentHeaderBytes, '\xff');
  EncodeFragmentHeader(*header, MutableBytes(again));
  SALIUS_CHECK(payload.substr(0, kFragmentHeaderBytes) == again);
}

void FuzzAck(std::string_view payload) {
  const auto ack = DecodeAckPayload(AsBytes(payload));
  if (!ack.ok()) return;
  SALIUS_CHECK(ack->ranges.size() <= kMaxAckRanges);
  for (const SeqRange& range : ack->ranges) {
    SALIUS_CHECK(range.first <= range.last && range.first > ack->contiguous);
  }
  std::string again(kMaxAckBytes, '\xff');
  again.resize(EncodeAckPayload(*ack, MutableBytes(again)));
  SALIUS_CHECK(payload == again);
}

void FuzzFrame(std::string_view datagram) {
  const auto header = DecodeFrameHeader(AsBytes(datagram));
  if (!header.ok()) return;
  SALIUS_CHECK(header->payload_bytes + kFrameHeaderBytes == datagram.size());
  std::string again(kFrameHeaderBytes, '\xff');
  EncodeFrameHeader(*header, MutableBytes(again));
  SALIUS_CHECK(datagram.substr(0, kFrameHeaderBytes) == again);
  const std::string_view payload = datagram.substr(kFrameHeaderBytes);
  if (header->type == FrameType::kFragment) FuzzFragment(payload);
  if (header->type == FrameType::kAck) FuzzAck(payload);
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;                // NOLINT: the function has to be outside
  using namespace salius::frame_layout;  // NOLINT
  const std::string_view raw(reinterpret_cast<const char*>(data), size);
  FuzzFrame(raw);
  FuzzFragment(raw);
  FuzzAck(raw);

  std::string bytes(raw);
  if (size >= kFrameHeaderBytes) {
    StoreU32(MutableBytes(bytes) + kFramePayloadBytesAt,
             static_cast<uint32_t>(size - kFrameHeaderBytes));
    SealCrc(bytes, kFrameCrcAt);
    FuzzFrame(bytes);
  }
  bytes = raw;
  SealCrc(bytes, kFragmentCrcAt);
  FuzzFragment(bytes);
  bytes = raw;
  if (size >= kAckFixedBytes) {
    StoreU32(MutableBytes(bytes) + kAckCrcAt, 0);
    StoreU32(MutableBytes(bytes) + kAckCrcAt, Crc32c(AsBytes(bytes)));
    FuzzAck(bytes);
  }
  return 0;
}
