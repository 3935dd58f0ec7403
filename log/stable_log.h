// The stable log `.salius/stable.log`: the primary's local copy of last resort. A preallocated ring
// written with O_DSYNC. docs/log-format.md gives every byte.
//
// Layout: two header slots of 4096 bytes (magic, version, volume, capacity, generation, start
// position, reach, checksum), then `capacity` bytes of entries. A position is a logical byte count
// that only grows; it lives at `position % capacity`. An entry is a 40-byte entry header (magic,
// kind, payload bytes, position, synced-through position, checksum) and a payload padded to 8
// bytes; an entry never wraps, a pad entry fills the ring's end. Kinds: record (payload: one log
// record), decision (recovery's pin), pad.
//
// Invariants
// - Every entry names the position up to which the log was synced when it was written. Reading from
//   the start position, the first bad entry is a torn tail. It is damage instead, DATA_LOSS, if a
//   valid later entry (position above it, synced-through above it) proves that it had been synced.
//   The error names the byte offset.
// - The start position moves (durably, before the space is used again) only over records of older
//   epochs, records at or below the noted checkpoint, and older decisions.
// - The header on disk names the reach: nothing was ever written at or beyond that position. The
//   reach moves (durably) before the log is written there. So entries behind a torn tail are found
//   without reading the whole ring.
// - After a failed Append the log refuses everything (a failed sync is never retried as if the data
//   were clean).
//
// Threads: not thread safe; one owner.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/files.h"
#include "common/ids.h"
#include "log/record.h"

namespace salius {

// Recovery's decision record (docs/recovery.md). Once it is on disk, a rerun needs no replica.
struct Decision {
  Epoch epoch = 0;  // the epoch that was recovered
  Seq last = 0;     // T: records 1..T of `epoch` are the volume's state
  // The state's checkpoint when decided: records (checkpoint, T] follow from the log.
  Seq checkpoint = 0;
  uint64_t count = 0;   // how many records are in (checkpoint, T]
  uint32_t digest = 0;  // CRC32C over the header_crc+body_crc of those records in seq order
  bool operator==(const Decision&) const = default;
};

class StableLog {
 public:
  // One record to append: header and body bytes may lie apart (no copy needed).
  struct Item {
    absl::Span<const uint8_t> head;
    absl::Span<const uint8_t> body;
  };
  struct Contents {
    std::vector<std::string> records;  // encoded, in append order, all epochs, verified
    std::vector<Decision> decisions;   // in append order
    uint64_t torn_bytes = 0;           // bytes of a torn tail that were ignored
  };

  // `files`, of which `dirfd` is, outlives the log.
  //
  // Creates the file with `capacity` bytes (multiple of 4096, at least 1 MiB), written with zeros
  // and synced so that later appends change no metadata. Errors: ALREADY_EXISTS,
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<StableLog> Create(Files& files, int dirfd, const std::string& name,
                                          const VolumeId& volume, uint64_t capacity);
  // Opens for use. `contents` (may be null) gets everything readable. Errors: NOT_FOUND, DATA_LOSS
  // (both headers bad; damage in the middle; of another volume), INVALID_ARGUMENT (unknown
  // version).
  static absl::StatusOr<StableLog> Open(Files& files, int dirfd, const std::string& name,
                                        const VolumeId& volume, Contents* contents);

  // Appends the records with one O_DSYNC write (two when the ring wraps). When it returns OK they
  // are on disk. RESOURCE_EXHAUSTED (nothing written, log still usable) when they do not fit.
  absl::Status Append(absl::Span<const Item> items);
  absl::Status AppendDecision(const Decision& decision);

  // Frees the space of leading entries: records with (epoch < `epoch`) or (epoch == `epoch` and
  // seq <= `checkpoint`), pads, and decisions with epoch < `epoch`. Stops at the first entry that
  // must stay. The cut is durable before the space is reused (the Append that needs the space may
  // write the header).
  absl::Status Cut(Epoch epoch, Seq checkpoint);

  // Returns the latest epoch of any entry in the log; 0 when it is empty.
  Epoch newest_epoch() const;

  uint64_t capacity() const;
  uint64_t used_bytes() const;
  uint64_t free_bytes() const;  // a conservative bound on what Append can take
  // Returns the bytes that an appended record of `record_bytes` takes in the ring.
  static uint64_t EntryBytes(uint64_t record_bytes);

  StableLog(StableLog&&) noexcept;
  StableLog& operator=(StableLog&&) noexcept;
  ~StableLog();

 private:
  struct Impl;
  explicit StableLog(std::unique_ptr<Impl> impl);
  // Opens as Open does, but its errors may lack the path.
  static absl::StatusOr<StableLog> OpenWhole(Files& files, int dirfd, const std::string& name,
                                             const VolumeId& volume, Contents* contents);
  std::unique_ptr<Impl> impl_;
};

}  // namespace salius
