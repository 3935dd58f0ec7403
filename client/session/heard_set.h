// The set of seqs that one replica has acknowledged, and the check that no later acknowledgement
// names less. Within one session a replica's memory only grows (a trim counts as held). So an
// acknowledgement of a frame names at least everything that was heard before the frame was sent.
// One that names less comes from a memory that went back: arena files of an earlier moment, or a
// virtual machine that was reverted. Its incarnation does not show that (I5).
//
// Acknowledgements overtake each other, so only the echoed send time orders them. An
// acknowledgement contradicts nothing that was heard after its frame was sent.
//
// pure: no thread, lock, socket or clock. Times are the primary's monotonic clock, in ns.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/ids.h"
#include "proto/frame.h"

namespace salius {

class HeardSet {
 public:
  // Ranges remembered at most. The highest are forgotten first; they are then not compared.
  static constexpr size_t kMaxRanges = 4 * kMaxAckRanges;

  // Forgets everything: the replica is opened again.
  void Reset() { *this = HeardSet(); }

  // Takes an acknowledgement received at `now` that answers a frame sent at `sent_ns` (negative:
  // unknown, so it contradicts nothing). Returns a text that says what the replica has lost, or ""
  // when nothing is contradicted. After a loss the object must be reset.
  std::string Take(int64_t now, int64_t sent_ns, const AckPayload& ack);

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::min();

  std::string TakeMarks(int64_t now, int64_t sent_ns, const AckPayload& ack);
  std::string TakeRanges(int64_t now, int64_t sent_ns, const AckPayload& ack);

  // Each value with the time at which it was heard first.
  Seq contiguous_ = 0;
  int64_t contiguous_ns_ = kNever;
  Seq base_ = 0, trimmed_ = 0;
  Epoch promise_ = 0;
  int64_t marks_ns_ = kNever;
  // Ranges above `contiguous`. A steady stream brings a new range with each acknowledgement, so a
  // list whose time moved with each addition would never be compared. So there are two: `listed_`
  // is fixed at its time and replaced when it was compared; `gathered_` has the later ranges.
  std::vector<SeqRange> listed_, gathered_;
  int64_t listed_ns_ = kNever, gathered_ns_ = kNever;
};

}  // namespace salius
