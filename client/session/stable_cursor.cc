#include "client/session/stable_cursor.h"

#include <algorithm>

namespace salius {

std::vector<Seq> StableCursor::Take(uint64_t max_bytes) {
  std::vector<Seq> batch;
  uint64_t bytes = 0;
  scan_ = std::max(scan_, window_.checkpoint());
  while (scan_ < upto_) {
    const Seq seq = scan_ + 1;
    Window::Slot& slot = window_.At(seq);
    if (!slot.stable && !slot.stable_in_flight) {
      const uint64_t size = window_.BytesUpTo(seq) - window_.BytesUpTo(seq - 1);
      if (!batch.empty() && bytes + size > max_bytes) break;
      bytes += size;
      slot.stable_in_flight = true;
      batch.push_back(seq);
    }
    scan_ = seq;
  }
  return batch;
}

void StableCursor::Appended(const std::vector<Seq>& seqs) {
  for (const Seq seq : seqs) {
    if (seq <= window_.checkpoint()) continue;  // checkpointed meanwhile
    window_.At(seq).stable_in_flight = false;
    window_.At(seq).stable = true;
  }
}

bool StableCursor::NoRoom(const std::vector<Seq>& seqs) {
  bool any = false;
  for (const Seq seq : seqs) {
    if (seq <= window_.checkpoint()) continue;
    window_.At(seq).stable_in_flight = false;
    scan_ = std::min(scan_, seq - 1);
    any = true;
  }
  return any;
}

}  // namespace salius
