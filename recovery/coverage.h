// Which seqs are in hand, as disjoint ranges: what collect asks a further replica for.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <map>
#include <optional>

#include "common/ids.h"

namespace salius::recovery {

class Coverage {
 public:
  // True when `seq` was not covered yet.
  bool Add(Seq seq);
  // The smallest uncovered seq in (after, last]; nullopt when there is none.
  std::optional<Seq> FirstMissing(Seq after, Seq last) const;
  // The largest uncovered seq in (after, last].
  std::optional<Seq> LastMissing(Seq after, Seq last) const;
  bool Contains(Seq seq) const;

 private:
  std::map<Seq, Seq> ranges_;  // first -> last, never touching
};

}  // namespace salius::recovery
