// Decodes the payload of compact frames. Each record that is taken is a whole record that lies
// after the one before; each header encodes to a form that decodes to the same header.
#include "transport/compact_records.h"

#include <array>
#include <optional>

#include "common/check.h"
#include "log/record.h"
#include "tests/fuzz/fuzz_util.h"
#include "transport/unpacker.h"

namespace salius {
namespace {

FrameHeader Frame(uint16_t count, size_t payload_bytes) {
  FrameHeader frame;
  frame.type = FrameType::kCompact;
  frame.count = count;
  frame.epoch = 3;
  frame.durable_mark = 6;
  frame.trim_mark = 4;
  frame.payload_bytes = static_cast<uint32_t>(payload_bytes);
  return frame;
}

void FuzzFrame(uint16_t count, absl::Span<const uint8_t> payload) {
  const FrameHeader frame = Frame(count, payload.size());
  size_t taken = 0;
  UnpackRecords(frame, payload, [&](const RecordHeader& header, absl::Span<const uint8_t> bytes) {
    ++taken;
    const absl::StatusOr<RecordHeader> again = DecodeRecord(bytes);
    SALIUS_CHECK(again.ok() && *again == header && bytes.size() == header.total_bytes());
    SALIUS_CHECK(header.epoch == frame.epoch);
  });
  SALIUS_CHECK(taken <= count);
}

// Gets past the checksums: the header that the bytes stand for, whatever its checksum.
void FuzzHeader(absl::Span<const uint8_t> bytes) {
  const RecordHeader before = BeforeFirst(Frame(1, 0));
  std::array<uint8_t, kRecordHeaderBytes> full{};
  RecordHeader header;
  std::optional<size_t> used = DecodeCompactHeader(before, bytes, &header, full.data());
  if (!used.has_value()) {
    // The checksum is in the last four bytes of the header, at one of these places.
    std::string sealed(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const uint32_t crc = LoadU32(&full[kRecordHeaderBytes - 4]);
    for (size_t end = kLeastCompactHeader; end <= kMostCompactHeader && end <= bytes.size();
         ++end) {
      std::string attempt = sealed;
      StoreU32(MutableBytes(attempt) + end - 4, crc);
      used = DecodeCompactHeader(before, AsBytes(attempt), &header, full.data());
      if (used.has_value()) break;
    }
  }
  if (!used.has_value()) return;
  SALIUS_CHECK(*used >= kLeastCompactHeader);
  std::array<uint8_t, kMostCompactHeader> coded;
  const size_t size = EncodeCompactHeader(before, header, LoadU32(&full[kRecordHeaderBytes - 4]),
                                          coded.data());
  RecordHeader again;
  SALIUS_CHECK(DecodeCompactHeader(before, absl::MakeConstSpan(coded).first(size), &again,
                                   full.data()) == size);
  SALIUS_CHECK(again == header);
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  if (size == 0) return 0;
  const absl::Span<const uint8_t> bytes(data + 1, size - 1);
  FuzzFrame(1 + data[0] % 8, bytes);
  FuzzHeader(bytes);
  return 0;
}
