// The set of seqs that one side of a session holds: a base, a contiguous prefix, and ranges above
// it. An acknowledgement carries this set (proto/frame.h, AckPayload).
//
// Invariants: contiguous() >= base() - 1; ranges are disjoint, do not touch, and lie above
// contiguous() + 1. Memory is bounded by `max_ranges`: a seq that would need one range more is
// refused, so a hostile order of arrival costs re-sends, not memory.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>

#include "absl/container/btree_map.h"
#include "common/ids.h"
#include "proto/frame.h"

namespace salius {

class AckSet {
 public:
  enum class AddResult {
    kAdded,      // was not held, now is
    kHeld,       // was held or trimmed already
    kBelowBase,  // never held here
    kTooManyRanges,
  };

  // Ranges kept at most; each takes some 40 bytes.
  static constexpr size_t kDefaultMaxRanges = 16384;

  // `base` > 0: the first seq that can be held.
  explicit AckSet(Seq base = 1, size_t max_ranges = kDefaultMaxRanges);

  AddResult Add(Seq seq);
  // Returns the result that Add would return, without adding.
  AddResult Check(Seq seq) const;

  // Counts everything up to `seq` as held from now on (it was dropped because it is checkpointed).
  void TrimTo(Seq seq);

  Seq base() const { return base_; }
  Seq contiguous() const { return contiguous_; }
  Seq highest() const;  // largest seq held; contiguous() when there are no ranges
  bool Contains(Seq seq) const;
  // Counts the seqs in [base, contiguous] and in the ranges that are larger than `after`.
  uint64_t CountAbove(Seq after) const;

  // Sets base, contiguous and the lowest ranges (at most kMaxAckRanges) of `ack`.
  void FillAck(AckPayload& ack) const;

 private:
  Seq base_;
  Seq contiguous_;
  size_t max_ranges_;
  absl::btree_map<Seq, Seq> ranges_;  // first -> last, inclusive
};

}  // namespace salius
