#include "recovery/run_file.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/limits.h"

namespace salius::recovery {
namespace {

constexpr uint32_t kMagic = 0x52524C53;  // "SLRR"
constexpr uint16_t kVersion = 1;

}  // namespace

std::string EncodeRunNote(const RunNote& note) {
  std::vector<uint8_t> bytes;
  ByteWriter out(&bytes);
  out.PutU32(kMagic);
  out.PutU16(kVersion);
  out.PutU16(0);
  out.PutBytes(note.volume.bytes);
  out.PutU64(note.epoch);
  out.PutU64(note.fence_epoch);
  out.PutU64(note.token);
  out.PutU32(Crc32c(bytes));
  SALIUS_CHECK(bytes.size() == kRunFileBytes);
  return std::string(AsText(bytes));
}

absl::StatusOr<RunNote> DecodeRunNote(absl::Span<const uint8_t> bytes) {
  if (bytes.size() != kRunFileBytes) {
    return absl::DataLossError(
        absl::StrFormat("recovery note: %d bytes, not %d", bytes.size(), kRunFileBytes));
  }
  ByteReader in(bytes);
  RunNote note;
  const uint32_t magic = in.U32();
  const uint16_t version = in.U16();
  const uint16_t reserved = in.U16();
  const absl::Span<const uint8_t> volume = in.Bytes(note.volume.bytes.size());
  std::copy(volume.begin(), volume.end(), note.volume.bytes.begin());
  note.epoch = in.U64();
  note.fence_epoch = in.U64();
  note.token = in.U64();
  if (in.U32() != Crc32c(bytes.first(kRunFileBytes - 4))) {
    return absl::DataLossError("recovery note: checksum does not match");
  }
  if (magic != kMagic || version != kVersion || reserved != 0 || note.token == 0 ||
      note.fence_epoch <= note.epoch || note.fence_epoch > kMaxCount) {
    return absl::InvalidArgumentError("recovery note: not written by this version");
  }
  return note;
}

absl::StatusOr<std::optional<RunNote>> ReadRunNote(Files& files, int salius_fd,
                                                   const VolumeId& volume, Epoch epoch) {
  const absl::StatusOr<std::string> bytes = ReadWholeFile(files, salius_fd, kRunFileName, 4096);
  if (absl::IsNotFound(bytes.status())) return std::optional<RunNote>();
  SALIUS_RETURN_IF_ERROR(bytes.status());
  const absl::StatusOr<RunNote> note = DecodeRunNote(AsBytes(*bytes));
  if (!note.ok() || note->volume != volume || note->epoch != epoch) {
    return std::optional<RunNote>();
  }
  return std::optional<RunNote>(*note);
}

absl::Status WriteRunNote(Files& files, int salius_fd, const RunNote& note) {
  return WriteFileAtomically(files, salius_fd, kRunFileName, AsBytes(EncodeRunNote(note)));
}

}  // namespace salius::recovery
