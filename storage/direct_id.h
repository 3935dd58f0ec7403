// The file id of a direct volume's file: the value of the xattr `user.salius.id`. The only encoder
// and decoder; docs/log-format.md gives the bytes.
//
// The value names the inode that it was written to, so a copy of the file with its xattrs does not
// count as the original. It names the volume, so a file of another volume does not count either.
// The owner of a file can change the value: it guards against accidents, not against the owner.
//
//    0  8  file id, not 0
//    8  8  inode number
//   16  8  first 8 bytes of the volume's UUID
//   24  4  version, 1
//   28  4  CRC-32C of the bytes before
//
// All numbers are little-endian. The preload library includes this header: it uses only headers of
// the standard library and calls nothing that has to be linked. Pure; no allocation.
#ifndef SALIUS_STORAGE_DIRECT_ID_H_
#define SALIUS_STORAGE_DIRECT_ID_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace salius {

inline constexpr char kDirectIdXattr[] = "user.salius.id";
inline constexpr size_t kDirectIdBytes = 32;
inline constexpr uint32_t kDirectIdVersion = 1;

struct DirectId {
  uint64_t file_id = 0;
  uint64_t inode = 0;
  uint8_t volume[8] = {};  // of the UUID's bytes, in their order
};

namespace direct_id_internal {
inline constexpr size_t kInodeAt = 8;
inline constexpr size_t kVolumeAt = 16;
inline constexpr size_t kVersionAt = 24;
inline constexpr size_t kChecksumAt = 28;

// CRC-32C bit by bit: the value is 28 bytes, read once for each open of a file.
inline uint32_t Checksum(const uint8_t* bytes, size_t count) {
  constexpr uint32_t kCastagnoliReversed = 0x82F63B78;
  uint32_t crc = ~uint32_t{0};
  for (size_t i = 0; i < count; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoliReversed : 0);
    }
  }
  return ~crc;
}
}  // namespace direct_id_internal

// Writes exactly kDirectIdBytes to `out`.
inline void EncodeDirectId(const DirectId& id, uint8_t* out) {
  namespace layout = direct_id_internal;
  const uint32_t version = kDirectIdVersion;
  std::memcpy(out, &id.file_id, sizeof(id.file_id));
  std::memcpy(out + layout::kInodeAt, &id.inode, sizeof(id.inode));
  std::memcpy(out + layout::kVolumeAt, id.volume, sizeof(id.volume));
  std::memcpy(out + layout::kVersionAt, &version, sizeof(version));
  const uint32_t checksum = layout::Checksum(out, layout::kChecksumAt);
  std::memcpy(out + layout::kChecksumAt, &checksum, sizeof(checksum));
}

// Decodes a value of `count` bytes. Returns false, and leaves `id` unchanged, if it has another
// length or version, a wrong checksum or the file id 0.
inline bool DecodeDirectId(const void* value, size_t count, DirectId* id) {
  namespace layout = direct_id_internal;
  if (count != kDirectIdBytes) return false;
  const uint8_t* const bytes = static_cast<const uint8_t*>(value);
  uint32_t version = 0;
  uint32_t checksum = 0;
  std::memcpy(&version, bytes + layout::kVersionAt, sizeof(version));
  std::memcpy(&checksum, bytes + layout::kChecksumAt, sizeof(checksum));
  if (version != kDirectIdVersion) return false;
  if (checksum != layout::Checksum(bytes, layout::kChecksumAt)) return false;
  DirectId decoded;
  std::memcpy(&decoded.file_id, bytes, sizeof(decoded.file_id));
  std::memcpy(&decoded.inode, bytes + layout::kInodeAt, sizeof(decoded.inode));
  std::memcpy(decoded.volume, bytes + layout::kVolumeAt, sizeof(decoded.volume));
  if (decoded.file_id == 0) return false;
  *id = decoded;
  return true;
}

// Returns whether the id belongs to the file with this inode number, in the volume whose UUID
// begins with `volume`.
inline bool DirectIdIsOf(const DirectId& id, uint64_t inode, const uint8_t volume[8]) {
  return id.inode == inode && std::memcmp(id.volume, volume, sizeof(id.volume)) == 0;
}

}  // namespace salius

#endif  // SALIUS_STORAGE_DIRECT_ID_H_
