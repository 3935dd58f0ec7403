// Decodes records: the fixed part and the body. Each accepted one encodes to the same bytes.
#include "log/record.h"

#include "common/check.h"
#include "tests/fuzz/fuzz_util.h"

namespace salius {
namespace {

template <typename Body>
void RoundTrip(std::string_view bytes) {
  const absl::StatusOr<Body> body = Body::Decode(bytes);
  if (body.ok()) SALIUS_CHECK(body->Encode() == bytes);
}

void FuzzBody(Op op, std::string_view body) {
  switch (op) {
    case Op::kSetAttr:
      return RoundTrip<AttrBody>(body);
    case Op::kSetXattr:
    case Op::kRemoveXattr:
      return RoundTrip<XattrBody>(body);
    case Op::kCreate:
      return RoundTrip<CreateBody>(body);
    case Op::kLink:
    case Op::kUnlink:
      return RoundTrip<NameBody>(body);
    case Op::kRename:
      return RoundTrip<RenameBody>(body);
    case Op::kAdopt:
      return RoundTrip<AdoptBody>(body);
    default:
      return;
  }
}

void FuzzRecord(std::string_view bytes) {
  const absl::StatusOr<RecordHeader> header = DecodeRecord(AsBytes(bytes));
  if (!header.ok()) return;
  SALIUS_CHECK(KnownOp(static_cast<uint16_t>(header->op)));
  const std::string_view body = bytes.substr(kRecordHeaderBytes, header->body_bytes);
  SALIUS_CHECK(EncodeRecord(*header, body) == bytes.substr(0, header->total_bytes()));
  FuzzBody(header->op, body);
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace salius;  // NOLINT: the function has to be outside
  std::string bytes(reinterpret_cast<const char*>(data), size);
  FuzzRecord(bytes);
  if (size >= kRecordHeaderBytes) {
    // The same bytes with valid lengths and checksums.
    uint8_t* const out = MutableBytes(bytes);
    StoreU32(out + 8, static_cast<uint32_t>(size - kRecordHeaderBytes));
    StoreU32(out + 12, Crc32c(AsBytes(bytes).subspan(kRecordHeaderBytes)));
    SealCrc(bytes, kRecordHeaderBytes - 4);
    FuzzRecord(bytes);
  }
  // A body alone; the first byte selects the operation.
  if (size > 0) {
    const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
    FuzzBody(static_cast<Op>(data[0] % 14), body);
  }
  return 0;
}
