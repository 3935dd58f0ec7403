// The fixed part of a log record (log/record.h), and its encoder. Needs the standard library and
// ISA-L only: processes of a direct volume encode records themselves (client/direct/window).
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/id_types.h"

namespace salius {

// Operations. Numbers are on disk and on the wire and are never reused.
enum class Op : uint16_t {
  kWrite = 1,        // arg0 offset; body: the bytes
  kTruncate = 2,     // arg0 new size
  kFallocate = 3,    // arg0 offset, arg1 length, arg2 mode (FALLOC_FL_* subset)
  kSetAttr = 4,      // body: AttrBody
  kSetXattr = 5,     // body: XattrBody
  kRemoveXattr = 6,  // body: XattrBody with an empty value
  kCreate = 7,       // body: CreateBody; file_id is the new file's
  kLink = 8,         // body: NameBody
  kUnlink = 9,       // body: NameBody; arg0 = 1 when a directory is removed, arg1 = 1 when a file
                     // has no other name
  kRename = 10,      // body: RenameBody; arg0 = 1 when the file displaced has no other name
  kCancel = 11,      // arg0: the seq that was refused after it became durable
  kOnDisk = 12,      // arg0: "file_id's data is on disk up to this seq" (I3)
  kAdopt = 13,       // body: AdoptBody; a file that was there before gets its id
};

// arg2 of a record of names or attributes (kSetAttr to kRename): its caller waits until it is
// applied, and gets the error of a change that the file system refuses. Without it the caller has its
// success already, so recovery never leaves the record out.
inline constexpr uint64_t kAwaited = 1;

inline constexpr uint32_t kRecordMagic = 0x31524C53;  // "SLR1"
inline constexpr uint16_t kRecordVersion = 1;
inline constexpr size_t kRecordHeaderBytes = 112;

// The decoded fixed part of a record.
struct RecordHeader {
  Op op = Op::kWrite;
  uint32_t body_bytes = 0;
  uint32_t body_crc = 0;  // CRC32C of the body
  VolumeId volume{};
  Epoch epoch = 0;
  Seq seq = 0;
  uint64_t timestamp_ns = 0;  // primary's clock, strictly increasing within a volume
  Seq durable_mark = 0;       // primary's durable watermark when stamped (same epoch)
  Seq checkpoint_mark = 0;    // primary's noted checkpoint when stamped (same epoch)
  FileId file_id = kNoFileId;
  uint64_t arg0 = 0;
  uint64_t arg1 = 0;
  uint64_t arg2 = 0;

  size_t total_bytes() const { return kRecordHeaderBytes + body_bytes; }
  bool operator==(const RecordHeader&) const = default;
};

// Returns a record's timestamp, ns. It is later than `last` even when the wall clock, which shows
// `now`, was set back.
inline uint64_t NextTimestamp(uint64_t last, uint64_t now) { return std::max(last + 1, now); }

// Writes exactly kRecordHeaderBytes to `out`, checksum included.
void EncodeRecordHeader(const RecordHeader& header, uint8_t* out);

}  // namespace salius
