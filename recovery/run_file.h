// `.salius/recovery`: the epoch with which this volume's recovery fences, and its token.
//
// The file is needed for two reasons. A replica accepts the same epoch again only with the same
// token. So a run that was cut off after fencing must come back with that token. And the next
// session's epoch must lie above the fence's, even when the deciding run never committed.
//
// It is written and synced before the first replica is asked, and replaced atomically. It stays in
// place after the commit: it names its epoch, so a later recovery ignores it.
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
#include "common/files.h"
#include "common/ids.h"

namespace salius::recovery {

inline constexpr char kRunFileName[] = "recovery";
inline constexpr size_t kRunFileBytes = 52;

struct RunNote {
  VolumeId volume{};
  Epoch epoch = 0;        // the epoch being recovered
  Epoch fence_epoch = 0;  // promised by the replicas; the commit notes it
  uint64_t token = 0;     // nonzero
  bool operator==(const RunNote&) const = default;
};

std::string EncodeRunNote(const RunNote& note);
// Decodes the note. DATA_LOSS for a bad checksum or size, INVALID_ARGUMENT for content that this
// program never writes.
absl::StatusOr<RunNote> DecodeRunNote(absl::Span<const uint8_t> bytes);

// Returns the note for exactly (`volume`, `epoch`). Returns nullopt when there is none, when it is
// for another epoch, or when it is damaged (then only a new token helps).
absl::StatusOr<std::optional<RunNote>> ReadRunNote(Files& files, int salius_fd,
                                                   const VolumeId& volume, Epoch epoch);
// Writes the note; on OK it is on disk.
absl::Status WriteRunNote(Files& files, int salius_fd, const RunNote& note);

}  // namespace salius::recovery
