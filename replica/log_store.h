// The records of one volume's session, in the volume's segments of the arena.
//
// Segment: entries back to back from its start, each 16 bytes and a record, padded to 8 bytes:
//   0  u64 tag            the segment's (replica/arena.h)
//   8  u32 bytes << 1 | complete
//   12 u32 check          CRC32C of tag, position and the word at 8
//   16 the record
// An entry is first written as reserved (complete = 0), its place is then counted in the segment's
// `used`, the record is copied, and one store marks it complete: a process killed in between leaves
// a hole that the next one skips.
//
// Invariants
// - A record is held (in held()) only when its entry is complete and its checksums were right.
// - Nothing but TrimTo() and DropAll() ever drops a record (I6).
// - At most `grant_segments` segments are used, kMaxInProgress records are in pieces, and the span
//   of seqs is bounded by what the grant could hold, so memory is bounded whatever arrives.
// - Beside header and body a record costs at most 64 bytes: 16 of entry, up to 7 of padding, 8 to
//   16 of index, and its share of the segment table. Not in it is the end of a segment that the
//   next record does not fit into: of 1 MiB at most an eighth, for records of 128 KiB; 4 KB a
//   record for the 124 KiB that large writes are cut into; below 12 KiB it is within the 64 bytes.
//
// pure: works on the arena's memory; no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "log/record.h"
#include "proto/frame.h"
#include "replica/arena.h"
#include "transport/ack_set.h"

namespace salius {

inline constexpr size_t kLogEntryBytes = 16;
// Calls the function with every number below `count`, in any order and maybe several at once, and
// returns when all are done.
using ForEach = std::function<void(size_t count, const std::function<void(size_t)>& one)>;
inline void InTurn(size_t count, const std::function<void(size_t)>& one) {
  for (size_t i = 0; i < count; ++i) one(i);
}
// Records that may be in pieces at a time: more than a full window of the largest records, so that
// loss of one piece of each does not make the rest be sent again.
inline constexpr size_t kMaxInProgress = 1024;
// Separate runs of bytes of one record in pieces; 128 KiB in datagrams of 1472 bytes has 97 pieces.
inline constexpr size_t kMaxPieces = 256;

class VolumeLog {
 public:
  enum class Result {
    kStored,       // now held
    kPending,      // a piece was taken, the record is not whole yet
    kDuplicate,    // held already, with the same bytes (or a piece of a record that is held)
    kConflict,     // held already, with other bytes: refused
    kTrimmed,      // at or below the trim mark
    kBelowBase,    // below the session's base
    kMemoryFull,   // the grant is used up
    kOutOfWindow,  // too far ahead, too scattered, or too many in pieces: send it again later
    kCorrupt,      // whole now, and its checksum is wrong: all its pieces were dropped
    kForeign,  // whole now, and it belongs to another volume or epoch or has another seq or size
  };

  // Segments that a session needs to keep `memory_bytes` of records, whatever their sizes: ends of
  // segments that the next record does not fit into, and entries, included.
  static uint32_t GrantSegments(uint64_t memory_bytes, uint64_t segment_bytes);

  // An empty log; `slot.epoch` != 0. Rebuild() takes over what the arena holds for `slot_index`.
  VolumeLog(Arena& arena, uint32_t slot_index, const VolumeSlot& slot);
  VolumeLog(const VolumeLog&) = delete;
  VolumeLog& operator=(const VolumeLog&) = delete;

  struct RebuildReport {
    uint64_t records = 0;
    uint64_t damaged = 0;  // entries or records that are not what was written
    Seq durable_mark = 0;  // largest in the records
    Seq checkpoint_mark = 0;
  };
  // After a restart: reads every segment of the slot, as `for_each` says, verifies every record,
  // and holds those that are right. A bad one costs itself, or what lies up to the next good entry.
  // Segments with nothing in them are freed. Call once, before anything else.
  RebuildReport Rebuild(const ForEach& for_each = InTurn);

  // `bytes` is the whole record, verified, `header` its header, volume and epoch the log's.
  Result Append(const RecordHeader& header, absl::Span<const uint8_t> bytes);
  // A piece of a record. On kStored `*completed` is the verified header.
  Result AddPiece(const FragmentHeader& fragment, absl::Span<const uint8_t> piece,
                  RecordHeader* completed);

  // Drops everything at or below `seq`; segments with nothing above it are freed. Looks at each
  // segment once and at no record.
  void TrimTo(Seq seq);
  // Gives every segment back; the log is empty afterwards and must not be used again.
  void DropAll();

  // Appends to `out` the records with after < seq <= upto in seq order, until it has max_bytes or
  // more, or 65536 seqs were looked at. `*cursor` is the last seq looked at: pass it as `after`
  // next time; when it is `upto` that was all. Returns the number of records appended.
  uint64_t Read(Seq after, Seq upto, size_t max_bytes, std::string* out, Seq* cursor) const;

  const AckSet& held() const { return held_; }
  Seq floor() const { return floor_; }  // nothing at or below it is kept
  uint64_t records() const { return held_.CountAbove(floor_); }
  uint64_t records_above(Seq after) const { return held_.CountAbove(std::max(after, floor_)); }
  // Bytes of records in the segments; those that were trimmed but share a segment with others
  // count.
  uint64_t bytes() const { return record_bytes_; }
  // What can still be stored for sure.
  uint64_t free_bytes() const;
  size_t in_progress() const { return in_progress_.size(); }

  // Where the memory went; for tests and metrics.
  struct Accounting {
    uint64_t segments = 0;
    uint64_t record_bytes = 0;  // headers and bodies
    uint64_t entry_bytes = 0;   // entry headers and padding
    uint64_t tail_bytes = 0;    // ends of segments, the current one's free end excepted
    uint64_t index_bytes = 0;
    uint64_t table_bytes = 0;  // segment table, in the arena and here
  };
  Accounting accounting() const;

 private:
  struct Segment {
    uint32_t index = 0;
    uint32_t used = 0;
    Seq max_seq = 0;  // largest seq in it, pieces included
    uint64_t record_bytes = 0;
  };
  struct Place {
    uint32_t segment;
    uint32_t offset;  // of the entry
  };
  struct InProgress {
    Place place;
    uint32_t record_bytes;
    uint32_t received;                                           // bytes in `runs`
    absl::InlinedVector<std::pair<uint32_t, uint32_t>, 4> runs;  // [begin, end), ascending, apart
    // The checksum of the body so far, taken while a piece is in the CPU's cache: of what lies
    // before `summed`, which never changes any more.
    uint32_t summed;
    uint32_t body_crc;
  };

  static InProgress Unreceived(Place place, uint32_t record_bytes);
  std::optional<Result> Refusal(Seq seq) const;
  std::optional<Place> Reserve(Seq seq, uint32_t record_bytes);
  // Has the CPU fetch where the next entry goes, which would be waited for otherwise.
  void FetchNext() const;
  void Complete(Place place, uint32_t record_bytes);
  void Hold(Seq seq, Place place);
  Result FinishPieces(Seq seq, InProgress& record, RecordHeader* completed);
  static bool AddRun(InProgress& record, uint32_t begin, uint32_t end);
  void StorePiece(InProgress& record, uint32_t begin, absl::Span<const uint8_t> piece);
  uint8_t* BytesAt(Place place) {
    return arena_.segment_data(place.segment) + place.offset + kLogEntryBytes;
  }
  bool FitsIndex(Seq seq) const { return seq - floor_ <= window_; }
  void GrowIndex(Seq seq);
  uint64_t& IndexAt(Seq seq) { return index_[seq & (index_.size() - 1)]; }
  uint64_t IndexAt(Seq seq) const { return index_[seq & (index_.size() - 1)]; }
  absl::Span<const uint8_t> RecordAt(uint64_t location) const;
  void WriteEntry(Place place, uint32_t record_bytes, bool complete);
  // Bytes of the record at `offset`, and whether it is complete; nothing when this is no entry.
  std::optional<std::pair<uint32_t, bool>> ReadEntry(Place place, uint32_t limit) const;

  struct Found {
    Seq seq;
    Place place;
  };
  // What one segment holds; changes nothing.
  struct Scan {
    Segment segment;
    bool live = false;  // something in it is to be held
    RebuildReport report;
    std::vector<Found> found;
  };
  Scan ScanSegment(uint32_t index) const;
  void TakeFound(std::vector<Found>& found, RebuildReport& report);

  Arena& arena_;
  const uint32_t slot_;
  const VolumeId volume_;
  const Epoch epoch_;
  const uint32_t grant_;
  const uint64_t window_;  // seqs above floor_ that may be held
  Seq floor_;
  AckSet held_;
  std::vector<Segment> segments_;  // the last one is being filled
  uint64_t record_bytes_ = 0;
  // Ring by seq, for those that are held; what stands elsewhere says nothing: (segment + 1) << 32 |
  // offset of the entry. A power of two.
  std::vector<uint64_t> index_;
  absl::btree_map<Seq, InProgress> in_progress_;
};

}  // namespace salius
