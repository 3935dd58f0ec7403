// The records of one volume's session, in the volume's segments of the arena.
//
// Segment: entries back to back from its start, each 16 bytes and a record, padded to 8 bytes:
//   0  u64 tag            the segment's (replica/arena.h)
//   8  u32 bytes << 1 | complete
//   12 u32 check          CRC32C of tag, position and the word at 8
//   16 the record
// A record that the end of the segment cuts, behind its header, goes on in another one (the arena's
// segment_next), which begins with an entry for the rest: its word is bytes << 1 | kEntryGoesOn.
// An entry is first written as reserved (complete = 0), its place is then counted in the segment's
// `used`, the record is copied, and one store marks it complete: a process killed in between leaves
// a hole that the next one skips. Where a record goes on is in place before its entry.
//
// Invariants
// - A record is held (in held()) only when its entry is complete and its checksums were right.
// - Nothing but TrimTo() and DropAll() ever drops a record (I6).
// - At most `grant_segments` segments are used, kMaxInProgress records are in pieces, and the span
//   of seqs is bounded by what the grant could hold, so memory is bounded whatever arrives.
// - Beside header and body a record costs at most 64 bytes: 16 of entry, up to 7 of padding, 8 to
//   16 of index, and its share of the segment table, of ends of segments that take no header
//   (below 128 bytes), and of the entries for the rest of a record.
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
inline constexpr uint32_t kEntryGoesOn = uint32_t{1} << 31;
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

  // Segments that a session needs to keep `memory_bytes` of records, whatever their sizes: entries,
  // and a segment of which a part was trimmed, included.
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
  // After a restart: reads every segment of the slot, as `for_each` says, verifies every record
  // that was not trimmed, and holds those that are right. A bad one costs itself, or what lies up
  // to the next good entry. Segments with nothing in them are freed. Call once, before anything
  // else.
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
    uint64_t record_bytes = 0;  // of these records in this segment
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
  bool AddSegment();
  // Counts an entry with `bytes` of a record at the end of a segment.
  void Take(Segment& segment, Seq seq, uint32_t bytes);
  // Has the CPU fetch where the next entry goes, which would be waited for otherwise.
  void FetchNext() const;
  void Hold(Seq seq, Place place);
  Result FinishPieces(Seq seq, InProgress& record, RecordHeader* completed);
  static bool AddRun(InProgress& record, uint32_t begin, uint32_t end);
  void StorePiece(InProgress& record, uint32_t begin, absl::Span<const uint8_t> piece);
  // What an entry with so many bytes of a record takes.
  static constexpr uint32_t EntrySpan(uint32_t bytes) {
    return (static_cast<uint32_t>(kLogEntryBytes) + bytes + 7) / 8 * 8;
  }
  // How many bytes of a record are in the segment of its entry.
  uint32_t BytesHere(Place place, uint32_t record_bytes) const {
    const uint64_t room = arena_.geometry().segment_bytes - place.offset - kLogEntryBytes;
    return static_cast<uint32_t>(std::min<uint64_t>(record_bytes, room));
  }
  // Calls `one` with a place in the record, and the bytes there in the arena, for each of the one
  // or two stretches that [from, to) of the record are in.
  template <typename One>
  void EachStretch(Place place, uint32_t record_bytes, uint32_t from, uint32_t to, One one) const;
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
  // Nothing when there is none.
  std::optional<Entry> ReadEntry(Place place, uint32_t limit) const;

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
    std::vector<std::pair<Place, uint32_t>> bad;  // complete entries, and their bytes
    // Where the last one of those found goes on, and its seq.
    std::optional<uint32_t> next;
    Seq next_seq = 0;
  };
  Scan ScanSegment(uint32_t index) const;
  // By its checksum; and its second part, if it has one, is where it should be.
  bool BodyIsRight(Place place, const RecordHeader& header) const;
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
