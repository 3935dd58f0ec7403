// The arena: the one block of memory in which a replica keeps every log. A process killed at any
// instruction leaves an arena that the next process can attach to. docs/replica.md gives every
// byte.
//
// - page 0: magic, version, geometry (checksummed), incarnation, number of process starts
// - slot table: kSlotBytes per volume: two copies of the slot, each with generation and checksum
// - segment table: kSegmentEntryBytes per segment: tag, owner, bytes used, next segment
// - segments: entries (replica/log_store.h), back to back
//
// A crash leaves each update done or not done. A slot is written into the copy that is not current,
// so one copy is always whole. A segment-table word is one aligned 8-byte store that carries its
// own check. Anything else is damage by other means and is counted in `damaged()`.
//
// Memory that was damaged is memory that was lost (I5): a user that finds damage must call
// NewIncarnation() before anything is acknowledged.
//
// pure: works on a span of memory; no thread, lock, socket, clock or file. Randomness comes in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"

namespace salius {

inline constexpr size_t kArenaPageBytes = 4096;
inline constexpr size_t kSlotBytes = 512;  // two copies of kSlotCopyBytes
inline constexpr size_t kSlotCopyBytes = 256;
inline constexpr size_t kSegmentEntryBytes = 32;
inline constexpr uint64_t kMinArenaBytes = uint64_t{2} << 20;
// Segment and slot numbers stay 32 bits.
inline constexpr uint64_t kMaxArenaBytes = uint64_t{1} << 42;
inline constexpr size_t kMaxMulticastBytes = 64;

// The offsets of an arena of a given size.
struct ArenaGeometry {
  uint64_t total_bytes = 0;
  uint64_t segment_bytes = 0;
  uint32_t segment_count = 0;
  uint32_t slot_count = 0;
  uint64_t segment_table_at = 0;
  uint64_t segments_at = 0;

  // Lays out an arena. INVALID_ARGUMENT when `total_bytes` is below kMinArenaBytes, above
  // kMaxArenaBytes or not a multiple of the page.
  static absl::StatusOr<ArenaGeometry> For(uint64_t total_bytes);
};

// The facts kept about one volume beside its records.
struct VolumeSlot {
  VolumeId volume{};
  Epoch epoch = 0;  // of the session, 0: none
  uint64_t session = 0;
  Seq base = 0;
  Seq trimmed = 0;
  Epoch promise_epoch = 0;  // 0: none
  uint64_t promise_token = 0;
  Seq durable_mark = 0;
  Seq checkpoint_mark = 0;
  uint64_t tau_ms = 0;
  uint32_t k = 0;
  uint32_t grant_segments = 0;  // segments reserved for the volume
  uint64_t memory_bytes = 0;    // size that the session asked for
  std::string multicast;        // at most kMaxMulticastBytes
  bool sealed = false;          // only sealed frames of the session are taken
  bool operator==(const VolumeSlot&) const = default;

  // Returns the fence: lower epochs are fenced by the promise, or by a session that superseded
  // them.
  Epoch fence_epoch() const { return std::max(promise_epoch, epoch); }
};

class Arena {
 public:
  using RandomSource = std::function<uint64_t()>;

  // Lays an empty arena over `memory` (its size must suit ArenaGeometry), whatever its contents.
  // The magic is written last, so that a half-written arena is not recognised as one.
  static absl::Status Format(absl::Span<uint8_t> memory, RandomSource random);

  // Takes over the arena in `memory` and counts one process start. NOT_FOUND when there is no
  // arena, FAILED_PRECONDITION when it has another version, size or layout, DATA_LOSS when its
  // header is damaged. The memory must outlive the arena.
  static absl::StatusOr<Arena> Attach(absl::Span<uint8_t> memory, RandomSource random);

  Incarnation incarnation() const { return incarnation_; }
  // Notes that memory was lost: from now on this is another incarnation.
  void NewIncarnation();
  uint64_t process_starts() const;
  const ArenaGeometry& geometry() const { return geometry_; }
  // Returns how many slots and segment-table words Attach() found damaged. Their content is gone.
  uint64_t damaged() const { return damaged_; }

  // ---- slots: numbers from 0 to geometry().slot_count - 1
  // Returns null when the slot is empty.
  const VolumeSlot* slot(uint32_t index) const;
  // Takes an empty slot. RESOURCE_EXHAUSTED when every slot is taken.
  absl::StatusOr<uint32_t> NewSlot(const VolumeSlot& slot);
  // Replaces the content of a taken slot. Atomic for the next process.
  void WriteSlot(uint32_t index, const VolumeSlot& slot);
  void FreeSlot(uint32_t index);

  // ---- segments: numbers from 0 to geometry().segment_count - 1
  // Returns a free segment, empty, owned by the slot, with a new tag. Nothing when none is free.
  std::optional<uint32_t> AllocateSegment(uint32_t slot);
  void FreeSegment(uint32_t segment);
  std::vector<uint32_t> SegmentsOf(uint32_t slot) const;
  uint8_t* segment_data(uint32_t segment);
  const uint8_t* segment_data(uint32_t segment) const;
  // Returns the segment's tag, random and new with every allocation. So the remains of a former
  // owner, or bytes that a client put into a record's body, can never pass for an entry of this
  // one.
  uint64_t segment_tag(uint32_t segment) const;
  // Returns the bytes taken by entries; nothing when the word was damaged.
  std::optional<uint32_t> segment_used(uint32_t segment) const;
  // Publishes `used`; call it after everything below `used` was written.
  void SetSegmentUsed(uint32_t segment, uint32_t used);
  // Sets the segment, of the same slot, in which the record continues that the end of `segment`
  // cuts. Call it before that record's entry is published.
  void SetSegmentNext(uint32_t segment, uint32_t next);
  // Returns nothing when there is none, when the word was damaged, or when that segment was freed.
  std::optional<uint32_t> segment_next(uint32_t segment) const;
  uint32_t free_segments() const { return static_cast<uint32_t>(free_.size()); }

 private:
  struct SlotCopies {
    std::optional<VolumeSlot> slot;
    uint64_t generation = 0;
    int current = 0;  // copy that holds `generation`
    bool damaged = false;
  };

  Arena(absl::Span<uint8_t> memory, const ArenaGeometry& geometry, RandomSource random);
  void LoadIncarnation();
  void LoadSlots();
  void LoadSegments();
  void StoreCopy(uint32_t index, const VolumeSlot* slot);
  uint8_t* entry(uint32_t segment);
  const uint8_t* entry(uint32_t segment) const;

  absl::Span<uint8_t> memory_;
  ArenaGeometry geometry_;
  RandomSource random_;
  Incarnation incarnation_ = 0;
  uint64_t damaged_ = 0;
  std::vector<SlotCopies> slots_;
  std::vector<uint32_t> owner_;  // per segment: slot + 1, 0 when free
  std::vector<uint32_t> free_;   // segment numbers, used from the back
};

}  // namespace salius
