// The log record: one operation on a volume with its data. It has the same bytes in a replica's
// memory, in the stable log and inside a datagram. docs/log-format.md gives every byte; this header
// is the only encoder and decoder.
//
// Invariants: a record never changes after it was stamped, so it is encoded once and the same bytes
// go everywhere. The header carries its own checksum and the body's, so that the body's CRC can be
// computed before the record is stamped (outside every lock).
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "log/record_header.h"

namespace salius {

// Whether `op` is a number this version knows.
bool KnownOp(uint16_t op);
std::string_view OpName(Op op);

// Decodes and verifies the fixed part: magic, version, header checksum, known op, reserved bytes
// zero, body_bytes <= kMaxRecordBody. Errors: DATA_LOSS for a bad checksum, INVALID_ARGUMENT for
// content that a correct encoder never writes, OUT_OF_RANGE for fewer than kRecordHeaderBytes.
absl::StatusOr<RecordHeader> DecodeRecordHeader(absl::Span<const uint8_t> bytes);

// Decodes the header and verifies the body that follows it. `bytes` may be longer than the record.
// Errors as above; DATA_LOSS when the body's checksum does not match; OUT_OF_RANGE when the body is
// cut off.
absl::StatusOr<RecordHeader> DecodeRecord(absl::Span<const uint8_t> bytes);

// Returns the whole record (header and body) as one string; for tests and recovery.
std::string EncodeRecord(RecordHeader header, std::string_view body);

// ---- bodies -------------------------------------------------------------------------------------
// Each has Encode() and a static Decode(). Decode() refuses trailing bytes and invalid names:
// empty, "." or "..", with '/' or NUL, or longer than kMaxNameBytes.

// The parts of AttrBody that count.
enum AttrMask : uint32_t {
  kAttrMode = 1u << 0,
  kAttrUid = 1u << 1,
  kAttrGid = 1u << 2,
  kAttrAtime = 1u << 3,
  kAttrMtime = 1u << 4,
};

struct AttrBody {
  uint32_t mask = 0;
  uint32_t mode = 0;  // permission bits incl. suid, sgid, sticky (07777)
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t atime_sec = 0;
  uint32_t atime_nsec = 0;
  int64_t mtime_sec = 0;
  uint32_t mtime_nsec = 0;
  bool operator==(const AttrBody&) const = default;
  std::string Encode() const;
  static absl::StatusOr<AttrBody> Decode(std::string_view body);
};

struct XattrBody {
  std::string name;
  std::string value;
  bool operator==(const XattrBody&) const = default;
  std::string Encode() const;
  static absl::StatusOr<XattrBody> Decode(std::string_view body);
};

struct NameBody {
  FileId dir = kNoFileId;
  std::string name;
  bool operator==(const NameBody&) const = default;
  std::string Encode() const;
  static absl::StatusOr<NameBody> Decode(std::string_view body);
};

struct CreateBody {
  FileId dir = kNoFileId;  // kNoFileId: nameless (O_TMPFILE), bound to .salius/open/ until linked
  std::string name;        // empty only when nameless
  uint32_t mode = 0;       // final type and permission bits (umask, ACL, setgid applied)
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t rdev = 0;
  std::string symlink_target;                               // S_IFLNK only
  std::vector<std::pair<std::string, std::string>> xattrs;  // inherited ACLs, security labels
  bool operator==(const CreateBody&) const = default;
  std::string Encode() const;
  static absl::StatusOr<CreateBody> Decode(std::string_view body);
};

struct RenameBody {
  FileId from_dir = kNoFileId;
  std::string from_name;
  FileId to_dir = kNoFileId;
  std::string to_name;
  // 0, RENAME_NOREPLACE or RENAME_EXCHANGE; RENAME_WHITEOUT alone or beside RENAME_NOREPLACE.
  uint32_t flags = 0;
  FileId other = kNoFileId;  // file displaced or exchanged; kNoFileId when none
  // With RENAME_WHITEOUT: the id, user and group of the character device 0:0 of mode 0 that the
  // rename leaves at `from_name`. Overlayfs marks with it that a name is gone.
  FileId whiteout = kNoFileId;
  uint32_t whiteout_uid = 0;
  uint32_t whiteout_gid = 0;
  // Returns the create record of the whiteout. Only with RENAME_WHITEOUT.
  CreateBody Whiteout() const;
  bool operator==(const RenameBody&) const = default;
  std::string Encode() const;
  static absl::StatusOr<RenameBody> Decode(std::string_view body);
};

struct AdoptBody {
  std::string path;         // relative to the volume's root, when adopted
  int32_t handle_type = 0;  // name_to_handle_at(2)
  std::string handle;
  bool operator==(const AdoptBody&) const = default;
  std::string Encode() const;
  static absl::StatusOr<AdoptBody> Decode(std::string_view body);
};

}  // namespace salius
