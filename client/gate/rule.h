// The decisions of a mount with commit=external: which answer waits, and which sync returns early.
// The front asks here, and so does the simulator of a volume.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>

#include "client/gate/page.h"

namespace salius::gate {

// The asking process of a request.
struct Asker {
  bool inside = false;       // its outputs are gated
  bool fills_cache = false;  // the answer goes into a cache from which the kernel answers others
  uint64_t last_change = 0;  // with `fills_cache`: the last record of the file in question
};

// Returns the record for which an answer waits that was made just now; 0: it is sent at once.
// Everything that it shows was issued before.
inline uint64_t AnswerWaitsFor(const Page& page, const Asker& asker) {
  const uint64_t issued = page.AwaitedByOutput();
  if (issued == 0 || !asker.inside) return issued;
  if (!asker.fills_cache) return 0;
  return page.durable.load(std::memory_order_acquire) >= asker.last_change ? 0 : asker.last_change;
}

// Returns whether a sync call returns early on an open file that was granted it. `inside`: the
// caller's outputs are gated. `mapped`: a shared map of the file may be stored into, which others
// see.
inline bool ReturnsEarly(bool inside, bool mapped) { return inside && !mapped; }

}  // namespace salius::gate
