// The records of one volume's session, in the volume's segments of the arena.
//
// Segment: entries back to back from its start, each 16 bytes and a record, padded to 8 bytes:
//   0  u64 tag            the segment's (replica/arena.h)
//   8  u32 bytes << 1 | complete
//   12 u32 check          CRC32C of tag, position and the word at 8
//   16 the record
// A record may continue behind its header in another segment (the arena's segment_next), when the
// end of its segment cuts it. The other segment then begins with an entry for the rest, whose word
// is bytes << 1 | kEntryIsRest.
//
// An entry is first written as reserved (complete = 0). Then its place is counted in the segment's
// `used`, the record is copied, and one store marks it complete. A process killed in between leaves
// a hole that the next one skips. The place of a record's rest is published before its entry.
//
// Invariants
// - A record is held (in held()) only when its entry is complete and its checksums were right.
// - Nothing but TrimTo() and DropAll() ever drops a record (I6).
// - Memory is bounded whatever arrives: at most `grant_segments` segments are used, kMaxInProgress
//   records are in pieces, and the span of seqs is bounded by the records that the grant can hold.
// - Beside header and body a record costs at most 64 bytes: 16 for the entry, up to 7 of padding, 8
//   to 16 for the index. The rest is its share of the segment table, of ends of segments that take
//   no header (below 128 bytes), and of the entries for the rest of a record.
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
#include "absl/types/span.h"
#include "common/ids.h"
#include "log/record.h"
#include "proto/frame.h"
#include "replica/arena.h"
#include "transport/ack_set.h"
#include "transport/unpacker.h"

namespace salius {

inline constexpr size_t kLogEntryBytes = 16;
inline constexpr uint32_t kEntryIsRest = uint32_t{1} << 31;
// Calls the function with every number below `count`, in any order and maybe several at once, and
// returns when all are done.
using ForEach = std::function<void(size_t count, const std::function<void(size_t)>& one)>;
inline void InTurn(size_t count, const std::function<void(size_t)>& one) {
  for (size_t i = 0; i < count; ++i) one(i);
}
// Records that may be in pieces at a time. It is more than a full window of the largest records, so
// that loss of one piece of each does not make the rest be sent again.
inline constexpr size_t kMaxInProgress = 1024;

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

  // Returns the segments that a session needs to keep `memory_bytes` of records of any sizes. It
  // includes the entries, and a segment of which a part was trimmed.
  static uint32_t GrantSegments(uint64_t memory_bytes, uint64_t segment_bytes);

  // Makes an empty log; `slot.epoch` != 0. Rebuild() takes over the arena's records of
  // `slot_index`.
  VolumeLog(Arena& arena, uint32_t slot_index, const VolumeSlot& slot);
  VolumeLog(const VolumeLog&) = delete;
  VolumeLog& operator=(const VolumeLog&) = delete;

  struct RebuildReport {
    uint64_t records = 0;
    uint64_t damaged = 0;  // entries or records that differ from the ones written
    Seq durable_mark = 0;  // largest in the records
    Seq checkpoint_mark = 0;
  };
  // Restores the log after a restart; call it once, before anything else. It reads every segment of
  // the slot, as `for_each` says, verifies every record that was not trimmed, and holds the good
  // ones. A bad record costs itself, or everything up to the next good entry. Empty segments are
  // freed.
  RebuildReport Rebuild(const ForEach& for_each = InTurn);

  // Stores a whole record. `bytes` is the record, verified, and `header` its header; volume and
  // epoch are the log's.
  Result Append(const RecordHeader& header, absl::Span<const uint8_t> bytes);
  // Stores a piece of a record. On kStored `*completed` is the verified header.
  Result AddPiece(const FragmentHeader& fragment, absl::Span<const uint8_t> piece,
                  RecordHeader* completed);

  // Drops everything at or below `seq`; segments with nothing above it are freed. Looks at each
  // segment once and at no record.
  void TrimTo(Seq seq);
  // Gives every segment back; the log is empty afterwards and must not be used again.
  void DropAll();

  // Appends to `out` the records with after < seq <= upto in seq order, until it has max_bytes or
  // more, or 65536 seqs were looked at. `*cursor` is the last seq looked at: pass it as `after`
  // next time. When it is `upto`, all have been read. Returns the number of records appended.
  uint64_t Read(Seq after, Seq upto, size_t max_bytes, std::string* out, Seq* cursor) const;

  const AckSet& held() const { return held_; }
  Seq floor() const { return floor_; }  // nothing at or below it is kept
  uint64_t records() const { return held_.CountAbove(floor_); }
  uint64_t records_above(Seq after) const { return held_.CountAbove(std::max(after, floor_)); }
  // Returns the bytes of records in the segments. Trimmed records that share a segment with others
  // count.
  uint64_t bytes() const { return record_bytes_; }
  // Returns the bytes that can still be stored for sure.
  uint64_t free_bytes() const;
  size_t in_progress() const { return in_progress_.size(); }

  // The use of the memory; for tests and metrics.
  struct Accounting {
    uint64_t segments = 0;
    uint64_t record_bytes = 0;  // headers and bodies
    uint64_t entry_bytes = 0;   // entry headers and padding
    uint64_t tail_bytes = 0;    // ends of segments that took no header; not the current one's end
    uint64_t index_bytes = 0;
    uint64_t table_bytes = 0;  // segment table, in the arena and here
  };
  Accounting accounting() const;

 private:
  struct Segment {
    uint32_t index = 0;
    uint32_t used = 0;
    Seq max_seq = 0;            // largest seq in it, pieces included
    uint64_t record_bytes = 0;  // of these records, in this segment
  };
  struct Place {
    uint32_t segment;
    uint32_t offset;  // of the entry
  };
  struct InProgress {
    Place place;
    uint32_t record_bytes;
    PieceRuns received;
    // The checksum of the body's bytes before `summed`, which never change any more. It is taken
    // while a piece is in the CPU's cache.
    uint32_t summed;
    uint32_t body_crc;
  };

  static InProgress Unreceived(Place place, uint32_t record_bytes);
  std::optional<Result> Refusal(Seq seq) const;
  std::optional<Place> Reserve(Seq seq, uint32_t record_bytes);
  bool AddSegment();
  // Counts an entry with `bytes` of a record at the end of a segment.
  void Take(Segment& segment, Seq seq, uint32_t bytes);
  // Makes the CPU fetch the place of the next entry, for which the store would wait otherwise.
  void FetchNext() const;
  void AddToIndex(Seq seq, Place place);
  Result FinishPieces(Seq seq, InProgress& record, RecordHeader* completed);
  void StorePiece(InProgress& record, uint32_t begin, absl::Span<const uint8_t> piece);
  // Returns the bytes that an entry with `bytes` of a record takes.
  static constexpr uint32_t EntrySpan(uint32_t bytes) {
    return (static_cast<uint32_t>(kLogEntryBytes) + bytes + 7) / 8 * 8;
  }
  // Returns how many bytes of a record are in the segment of its entry.
  uint32_t BytesHere(Place place, uint32_t record_bytes) const {
    const uint64_t room = arena_.geometry().segment_bytes - place.offset - kLogEntryBytes;
    return static_cast<uint32_t>(std::min<uint64_t>(record_bytes, room));
  }
  // Calls `one` for each of the one or two spans that contain [from, to) of the record. It
  // passes the place in the record, and the bytes there in the arena.
  template <typename One>
  void ForEachSpan(Place place, uint32_t record_bytes, uint32_t from, uint32_t to, One one) const;
  void ReadRecord(Place place, std::string* out) const;  // appends
  bool Equals(Place place, absl::Span<const uint8_t> record) const;
  uint32_t ExtendCrc(uint32_t crc, Place place, uint32_t record_bytes, uint32_t from) const;
  absl::StatusOr<RecordHeader> HeaderAt(Place place, uint32_t record_bytes) const;
  bool FitsIndex(Seq seq) const { return seq - floor_ <= window_; }
  void GrowIndex(Seq seq);
  uint64_t& IndexAt(Seq seq) { return index_[seq & (index_.size() - 1)]; }
  uint64_t IndexAt(Seq seq) const { return index_[seq & (index_.size() - 1)]; }
  Place PlaceOf(Seq seq) const;
  uint32_t RecordBytes(Place place) const;
  enum class EntryIs { kReserved, kComplete, kRest };
  struct Entry {
    uint32_t bytes;  // of the record, or of its rest
    EntryIs is;
  };
  void WriteEntry(Place place, Entry entry);
  // Returns nothing when there is no entry.
  std::optional<Entry> ReadEntry(Place place, uint32_t limit) const;

  struct Found {
    Seq seq;
    Place place;
  };
  // The contents of one segment; ScanSegment changes nothing.
  struct Scan {
    Segment segment;
    bool live = false;  // it has a record to hold
    RebuildReport report;
    std::vector<Found> found;
    std::vector<std::pair<Place, uint32_t>> bad;  // complete entries, and their bytes
    // The segment in which the last record found continues, and its seq.
    std::optional<uint32_t> next;
    Seq next_seq = 0;
  };
  Scan ScanSegment(uint32_t index) const;
  // Whether the checksum is right, and the second part, if there is one, is at its place.
  bool BodyIsIntact(Place place, const RecordHeader& header) const;
  void AddFoundRecords(std::vector<Found>& found, RebuildReport& report);

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
  // Ring by seq of the records that are held: (segment + 1) << 32 | offset of the entry. Other
  // elements have no meaning. The size is a power of two.
  std::vector<uint64_t> index_;
  absl::btree_map<Seq, InProgress> in_progress_;
};

}  // namespace salius
