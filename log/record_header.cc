#include "log/record_header.h"

#include <cstring>

#include "common/crc32c_bytes.h"
#include "common/load_store.h"
#include "log/record_layout.h"

namespace salius {

using namespace record_layout;  // NOLINT: offsets of this file's own format

void EncodeRecordHeader(const RecordHeader& header, uint8_t* out) {
  StoreU32(out + kMagicAt, kRecordMagic);
  StoreU16(out + kVersionAt, kRecordVersion);
  StoreU16(out + kOpAt, static_cast<uint16_t>(header.op));
  StoreU32(out + kBodyBytesAt, header.body_bytes);
  StoreU32(out + kBodyCrcAt, header.body_crc);
  std::memcpy(out + kVolumeAt, header.volume.bytes.data(), header.volume.bytes.size());
  StoreU64(out + kEpochAt, header.epoch);
  StoreU64(out + kSeqAt, header.seq);
  StoreU64(out + kTimestampAt, header.timestamp_ns);
  StoreU64(out + kDurableAt, header.durable_mark);
  StoreU64(out + kCheckpointAt, header.checkpoint_mark);
  StoreU64(out + kFileIdAt, header.file_id);
  StoreU64(out + kArg0At, header.arg0);
  StoreU64(out + kArg1At, header.arg1);
  StoreU64(out + kArg2At, header.arg2);
  StoreU32(out + kReservedAt, 0);
  StoreU32(out + kHeaderCrcAt, Crc32cBytes(0, out, kHeaderCrcAt));
}

}  // namespace salius
