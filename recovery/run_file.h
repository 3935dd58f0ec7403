// `.salius/recovery`: which epoch this volume's recovery fences with, and its token.
//
// Why a file: a replica accepts the same epoch again only with the same token, so a run that was
// cut off after fencing must come back with the one it used; and the next session's epoch must lie
// above the fence's even when the deciding run never committed. Written and synced before the first
// replica is asked, replaced atomically, left in place after the commit (it names the epoch it was
// for, so a later recovery ignores it).
//
// Layout, 52 bytes little-endian: magic u32 "SLRR", version u16 = 1, reserved u16 = 0, volume 16
// bytes, epoch u64, fence epoch u64, token u64, crc32c u32 of all before it.
//
// Threads: not thread safe; the caller holds the volume lock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"

namespace salius::recovery {

inline constexpr char kRunFileName[] = "recovery";
inline constexpr size_t kRunFileBytes = 52;

struct RunNote {
  VolumeId volume{};
  Epoch epoch = 0;        // being recovered
  Epoch fence_epoch = 0;  // promised by the replicas; the commit notes it
  uint64_t token = 0;     // nonzero
  bool operator==(const RunNote&) const = default;
};

std::string EncodeRunNote(const RunNote& note);
// DATA_LOSS for a bad checksum or size, INVALID_ARGUMENT for what this program never writes.
absl::StatusOr<RunNote> DecodeRunNote(absl::Span<const uint8_t> bytes);

// The note for exactly (`volume`, `epoch`); nullopt when there is none, or it is for another epoch,
// or it is damaged (then a new token is the only way on).
absl::StatusOr<std::optional<RunNote>> ReadRunNote(int salius_fd, const VolumeId& volume,
                                                   Epoch epoch);
// On OK it is on disk.
absl::Status WriteRunNote(int salius_fd, const RunNote& note);

}  // namespace salius::recovery
