#include "client/direct/window/stamp.h"

#include <algorithm>
#include <cstring>

#include "client/direct/window/robust_lock.h"
#include "client/direct/window/stripes.h"
#include "client/direct/window/system.h"
#include "client/direct/window/waits.h"
#include "common/crc32c_bytes.h"

namespace salius::direct {
namespace {

// Copied and summed at once, so that a body passes through the CPU's cache once.
constexpr size_t kSliceBytes = 16 << 10;
// Room is awaited for this many writers at once, in up to a quarter of the log: each takes its room
// after all of them saw it.
constexpr uint64_t kWritersAtOnce = 8;

// Calls `take(bytes, size)` for each piece of the draft's body.
template <typename Take>
void ForEachPiece(const Draft& draft, Take take) {
  size_t skip = draft.skip;
  size_t left = draft.body_bytes;
  for (int i = 0; i < draft.count && left > 0; ++i) {
    const iovec& part = draft.parts[i];
    if (skip >= part.iov_len) {
      skip -= part.iov_len;
      continue;
    }
    const size_t size = std::min(part.iov_len - skip, left);
    take(static_cast<const uint8_t*>(part.iov_base) + skip, size);
    skip = 0;
    left -= size;
  }
}

// Returns the ring bytes of a record: with what is left free at the end of the ring, if it does not
// fit there.
uint64_t RingBytes(const SharedWindow& window, uint64_t record_bytes) {
  const uint64_t ring = window.header().ring_bytes;
  const Window& slots = window.window();
  const uint64_t at = slots.At(slots.issued()).bytes_upto % ring;
  const uint64_t padded = SharedWindow::Padded(record_bytes);
  return at + padded > ring ? ring - at + padded : padded;
}

// The part of the log that is in use.
struct Use {
  uint64_t slots = 0;
  uint64_t ring_bytes = 0;
};
Use UseOf(const SharedWindow& window) {
  const Window& slots = window.window();
  const Seq ready = AdvanceReady(window);
  const Seq freed = std::min(slots.checkpoint(), ready);
  return {slots.issued() - freed, slots.At(slots.issued()).bytes_upto - slots.At(freed).bytes_upto};
}

bool HasRoom(const SharedWindow& window, uint64_t ring_bytes, int64_t now) {
  const Window& slots = window.window();
  const Use use = UseOf(window);
  if (slots.full() || use.slots >= slots.capacity()) return false;
  if (use.ring_bytes + ring_bytes > window.header().ring_bytes) return false;
  return slots.empty() ||
         now - slots.At(slots.checkpoint() + 1).issued_ns <= window.header().oldest_ns;
}

// Makes a void of the record, in the last bytes of its room.
void FillVoid(const SharedWindow& window, Seq seq) {
  const Header& shared = window.header();
  RecordHeader header;
  header.op = Op::kOnDisk;
  header.volume = shared.volume;
  header.epoch = shared.epoch;
  header.seq = seq;
  header.timestamp_ns = window.record(seq).timestamp_ns;
  header.durable_mark = std::min(shared.durable.load(), seq - 1);
  header.checkpoint_mark = std::min(window.window().checkpoint(), seq - 1);
  window.record(seq).bytes = kRecordHeaderBytes;
  EncodeRecordHeader(header, window.record_bytes(seq));
  MarkReady(window, seq);
  window.header().counters.voids.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

Reservation Reserve(const SharedWindow& window, const Draft& draft, int64_t now, int64_t realtime) {
  Reservation reserved;
  Header& shared = window.header();
  Window& slots = window.window();
  const Phase phase = window.phase().phase();
  if (phase != Phase::kStamping && phase != Phase::kReplicated) {
    reserved.why = NoSeq::kNotStamping;
    return reserved;
  }
  const auto record_bytes = static_cast<uint32_t>(kRecordHeaderBytes + draft.body_bytes);
  const uint64_t ring_bytes = RingBytes(window, record_bytes);
  if (!HasRoom(window, ring_bytes, now)) {
    reserved.why = NoSeq::kNoRoom;
    return reserved;
  }
  reserved.seq = slots.issued() + 1;
  RecordHeader& header = reserved.header;
  header.op = draft.op;
  header.body_bytes = draft.body_bytes;
  header.volume = shared.volume;
  header.epoch = shared.epoch;
  header.seq = reserved.seq;
  header.timestamp_ns = NextTimestamp(shared.last_timestamp_ns,
                                      static_cast<uint64_t>(std::max<int64_t>(realtime, 0)));
  header.durable_mark = shared.durable.load();
  header.checkpoint_mark = slots.checkpoint();
  header.file_id = draft.file_id;
  header.arg0 = draft.arg0;
  // All of the slot before `issued` covers it: a kill before that store leaves nothing behind.
  shared.last_timestamp_ns = header.timestamp_ns;
  RecordSlot& record = window.record(reserved.seq);
  record.ready.store(0);
  record.bytes = record_bytes;
  record.file = draft.file;
  record.first_of_claim = 0;
  record.timestamp_ns = header.timestamp_ns;
  slots.Add(ring_bytes, now);
  NoteUse(window);
  return reserved;
}

void NoteUse(const SharedWindow& window) {
  Header& header = window.header();
  const Use use = UseOf(window);
  const bool half =
      use.slots >= window.window().capacity() / 2 || use.ring_bytes >= header.ring_bytes / 2;
  if ((header.half_full.load() != 0) != half) header.half_full.store(half ? 1 : 0);
}

bool HasRoomForWrite(const SharedWindow& window, size_t bytes) {
  const uint64_t ring = window.header().ring_bytes, slots = window.window().capacity();
  const uint64_t records = bytes / kMaxRecordBody + 1;
  const uint64_t need = bytes + records * SharedWindow::Padded(kRecordHeaderBytes + 7);
  // A record that does not fit before the end of the ring begins at its start. So the room of one
  // record may stay free.
  const uint64_t left_free = std::min<uint64_t>(need, kRecordHeaderBytes + kMaxRecordBody);
  if (left_free + need > ring || records > slots) return true;
  const uint64_t wanted_bytes = std::max(need, std::min(kWritersAtOnce * need, ring / 4));
  const uint64_t wanted_slots = std::max(records, std::min(kWritersAtOnce * records, slots / 4));
  const Use use = UseOf(window);
  return use.ring_bytes + std::min(left_free + wanted_bytes, ring) <= ring &&
         use.slots + wanted_slots <= slots;
}

void Fill(const SharedWindow& window, const Draft& draft, Reservation& reserved) {
  uint8_t* const out = window.record_bytes(reserved.seq);
  uint8_t* to = out + kRecordHeaderBytes;
  uint32_t crc = 0;
  ForEachPiece(draft, [&](const uint8_t* bytes, size_t size) {
    for (size_t done = 0; done < size;) {
      const size_t slice = std::min(size - done, kSliceBytes);
      std::memcpy(to, bytes + done, slice);
      // Sums the copy: a program may change its buffer meanwhile (PostgreSQL does, in its WAL
      // buffers).
      crc = Crc32cBytes(crc, to, slice);
      to += slice;
      done += slice;
    }
  });
  reserved.header.body_crc = crc;
  EncodeRecordHeader(reserved.header, out);
}

void MarkReady(const SharedWindow& window, Seq seq) {
  window.record(seq).ready.store(1, std::memory_order_release);
}

Stamped Stamp(const SharedWindow& window, const Draft& draft) {
  Reservation reserved;
  bool first = false, fills = false;
  {
    WindowLock lock(window);
    const std::atomic<uint32_t>& half_full = window.header().half_full;
    first = window.window().empty();
    fills = half_full.load() == 0;
    reserved = Reserve(window, draft, MonotonicNs(), RealtimeNs());
    fills = fills && half_full.load() != 0;
  }
  if (reserved.why == NoSeq::kNoRoom || fills) Kick(window, kTroubleRoom);
  if (reserved.why != NoSeq::kNone) return {reserved.why, 0};
  Fill(window, draft, reserved);
  // Before the record is complete: a real fsync(2) of the file must find it (I3), also when this
  // process is killed here.
  window.file(draft.file).last_seq.store(reserved.seq);
  MarkReady(window, reserved.seq);
  if (first) Kick(window, kTroubleFirst);
  Counters& counters = window.header().counters;
  counters.records.fetch_add(1, std::memory_order_relaxed);
  counters.record_bytes.fetch_add(reserved.header.total_bytes(), std::memory_order_relaxed);
  return {NoSeq::kNone, reserved.seq};
}

Seq AdvanceReady(const SharedWindow& window) {
  Header& header = window.header();
  const Seq issued = window.window().issued();
  Seq ready = header.ready.load();
  while (ready < issued && window.record(ready + 1).ready.load(std::memory_order_acquire) != 0) {
    ++ready;
  }
  header.ready.store(ready);
  return ready;
}

uint32_t FillHoles(const SharedWindow& window) {
  Seq first = 0, last = 0;
  {
    WindowLock lock(window);
    first = AdvanceReady(window) + 1;
    last = window.window().issued();
  }
  uint32_t voids = 0;
  for (Seq seq = first; seq <= last; ++seq) {
    const uint32_t file = window.record(seq).file;
    if (window.record(seq).ready.load() != 0 || !TryTakeStripe(window, file)) continue;
    // Its owner held this stripe until the record was complete. So it never will be.
    if (window.record(seq).ready.load() == 0) {
      FillVoid(window, seq);
      ++voids;
    }
    GiveStripe(window, file);
  }
  return voids;
}

}  // namespace salius::direct
