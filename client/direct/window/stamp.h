// Stamping: how a record gets into the shared window. Three steps, and a process may be killed
// between or inside any two:
//
//     Reserve    under the window lock: seq, timestamp, room in the ring
//     Fill       the body's copy and the header; no lock
//     MarkReady  one store: the record is complete
//
// The caller holds the stripe of the record's file over all three. So a record that is not complete,
// and whose stripe is free or has a dead owner, is a hole: FillHoles makes a void record of it.
//
// A void is a record kOnDisk of no file: a recovery skips it.
//
// Needs the standard library and POSIX only.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "client/direct/window/layout.h"
#include "log/record_header.h"

namespace salius::direct {

// A record before it has a seq.
struct Draft {
  Op op = Op::kWrite;
  uint32_t file = kNoFile;  // its index; its stripe is held
  FileId file_id = kNoFileId;
  uint64_t arg0 = 0;
  // The body: `body_bytes` (at most kMaxRecordBody) of the parts, from `skip` bytes on.
  const iovec* parts = nullptr;
  int count = 0;
  size_t skip = 0;
  uint32_t body_bytes = 0;
};

enum class NoSeq : uint8_t {
  kNone,         // there is one
  kNotStamping,  // the phase: no log is kept now
  kNoRoom,       // ring or slots are full, or an old record waits for its checkpoint (I6)
};

struct Reservation {
  NoSeq why = NoSeq::kNone;
  Seq seq = 0;
  RecordHeader header;  // complete but for body_crc
};

// Reserves the next seq and its room for a record with `body_bytes` of body. `now`: monotonic,
// `realtime`: wall clock, ns. Under the window lock.
Reservation Reserve(const SharedWindow& window, const Draft& draft, int64_t now, int64_t realtime);
// Copies the body and encodes the header. No lock: it takes longer than all else.
void Fill(const SharedWindow& window, const Draft& draft, Reservation& reserved);
void MarkReady(const SharedWindow& window, Seq seq);

// Does all of it: takes the window lock for Reserve. Kicks when there is no room, or when the log
// becomes half full. The record is the last one of its file (FileEntry::last_seq) before it is complete.
struct Stamped {
  NoSeq why = NoSeq::kNone;
  Seq seq = 0;
};
Stamped Stamp(const SharedWindow& window, const Draft& draft);

// Notes in Header::half_full whether ring or slots are at least half full. Under the window lock,
// after each change of their use.
void NoteUse(const SharedWindow& window);
// Returns whether a write of `bytes` bytes finds room in ring and slots, also when several writers
// of its size come at once; or whether the log is too small for it at any time. Under the window
// lock.
bool HasRoomForWrite(const SharedWindow& window, size_t bytes);

// Advances Header::ready over the complete records. Returns it. Under the window lock.
Seq AdvanceReady(const SharedWindow& window);

// Makes void records of the holes: incomplete records whose process is dead. Takes stripes without
// waiting and the window lock, so the caller holds neither. Returns the number of voids. The records
// of living processes stay; call it again while AdvanceReady is behind `issued`.
uint32_t FillHoles(const SharedWindow& window);

}  // namespace salius::direct
