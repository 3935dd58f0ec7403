#include "log/record.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/limits.h"
#include "common/strings.h"
#include "log/record_layout.h"

namespace salius {
namespace {

using namespace record_layout;  // NOLINT: offsets of this file's own format

// Indexed by operation number; 0 was never used.
constexpr std::array<std::string_view, 14> kOpNames = {
    "unknown", "write", "truncate", "fallocate", "setattr", "setxattr", "removexattr",
    "create",  "link",  "unlink",   "rename",    "cancel",  "ondisk",   "adopt"};

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError("record: " + why);
}

}  // namespace

bool KnownOp(uint16_t op) {
  return op >= static_cast<uint16_t>(Op::kWrite) && op <= static_cast<uint16_t>(Op::kAdopt);
}

std::string_view OpName(Op op) {
  const auto number = static_cast<uint16_t>(op);
  return number < kOpNames.size() ? kOpNames[number] : kOpNames[0];
}

absl::StatusOr<RecordHeader> DecodeRecordHeader(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < kRecordHeaderBytes) {
    return absl::OutOfRangeError(absl::StrFormat("record: %d bytes, the fixed part has %d",
                                                 bytes.size(), kRecordHeaderBytes));
  }
  const uint8_t* const in = bytes.data();
  // Verify the checksum first: a flipped bit anywhere is damage, never a malformed record.
  if (LoadU32(in + kHeaderCrcAt) != Crc32c({in, kHeaderCrcAt})) {
    return absl::DataLossError(absl::StrFormat(
        "record: header checksum does not match (magic %08x)", LoadU32(in + kMagicAt)));
  }
  if (LoadU32(in + kMagicAt) != kRecordMagic) {
    return Malformed(absl::StrFormat("magic %08x", LoadU32(in + kMagicAt)));
  }
  if (LoadU16(in + kVersionAt) != kRecordVersion) {
    return Malformed(absl::StrFormat("version %d, this program knows %d", LoadU16(in + kVersionAt),
                                     kRecordVersion));
  }
  if (!KnownOp(LoadU16(in + kOpAt))) {
    return Malformed(absl::StrFormat("unknown operation %d", LoadU16(in + kOpAt)));
  }
  if (LoadU32(in + kReservedAt) != 0) return Malformed("reserved bytes are not zero");

  RecordHeader header;
  header.op = static_cast<Op>(LoadU16(in + kOpAt));
  header.body_bytes = LoadU32(in + kBodyBytesAt);
  header.body_crc = LoadU32(in + kBodyCrcAt);
  std::memcpy(header.volume.bytes.data(), in + kVolumeAt, header.volume.bytes.size());
  header.epoch = LoadU64(in + kEpochAt);
  header.seq = LoadU64(in + kSeqAt);
  header.timestamp_ns = LoadU64(in + kTimestampAt);
  header.durable_mark = LoadU64(in + kDurableAt);
  header.checkpoint_mark = LoadU64(in + kCheckpointAt);
  header.file_id = LoadU64(in + kFileIdAt);
  header.arg0 = LoadU64(in + kArg0At);
  header.arg1 = LoadU64(in + kArg1At);
  header.arg2 = LoadU64(in + kArg2At);
  if (header.body_bytes > kMaxRecordBody) {
    return Malformed(
        absl::StrFormat("body of %d bytes, at most %d", header.body_bytes, kMaxRecordBody));
  }
  if (std::max({header.epoch, header.seq, header.durable_mark, header.checkpoint_mark}) >
      kMaxCount) {
    return Malformed(absl::StrFormat("epoch %d, seq %d, durable mark %d, checkpoint mark %d",
                                     header.epoch, header.seq, header.durable_mark,
                                     header.checkpoint_mark));
  }
  return header;
}

absl::StatusOr<RecordHeader> DecodeRecord(absl::Span<const uint8_t> bytes) {
  SALIUS_ASSIGN_OR_RETURN(const RecordHeader header, DecodeRecordHeader(bytes));
  if (bytes.size() < header.total_bytes()) {
    return absl::OutOfRangeError(absl::StrFormat("record: cut off after %d of %d bytes",
                                                 bytes.size(), header.total_bytes()));
  }
  if (Crc32c(bytes.subspan(kRecordHeaderBytes, header.body_bytes)) != header.body_crc) {
    return absl::DataLossError(
        absl::StrFormat("record: body checksum of seq %d (epoch %d)", header.seq, header.epoch));
  }
  return header;
}

std::string EncodeRecord(RecordHeader header, std::string_view body) {
  SALIUS_CHECK(body.size() <= kMaxRecordBody);
  header.body_bytes = static_cast<uint32_t>(body.size());
  header.body_crc = Crc32c(AsBytes(body));
  std::string record(kRecordHeaderBytes, '\0');
  EncodeRecordHeader(header, reinterpret_cast<uint8_t*>(record.data()));
  record.append(body);
  return record;
}

}  // namespace salius
