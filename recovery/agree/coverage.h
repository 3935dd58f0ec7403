// The set of seqs in hand, as disjoint ranges. Collect asks further replicas for the others.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <map>
#include <optional>

#include "common/ids.h"

namespace salius::recovery {

class Coverage {
 public:
  // Adds `seq`; returns true when it was not covered yet.
  bool Add(Seq seq);
  // Returns the smallest uncovered seq in (after, last]; nullopt when there is none.
  std::optional<Seq> FirstMissing(Seq after, Seq last) const;
  // Returns the largest uncovered seq in (after, last]; nullopt when there is none.
  std::optional<Seq> LastMissing(Seq after, Seq last) const;
  bool Contains(Seq seq) const;

 private:
  std::map<Seq, Seq> ranges_;  // first -> last, never touching
};

}  // namespace salius::recovery
