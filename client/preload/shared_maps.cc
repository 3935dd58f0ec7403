#include "client/preload/shared_maps.h"

namespace salius::preload {

void SharedMaps::Add(uintptr_t start, size_t size, direct::File file) {
  for (uint32_t i = 0; i < kMost; ++i) {
    Map& map = maps_[i];
    if (map.taken.exchange(true, std::memory_order_acq_rel)) continue;
    map.size.store(size, std::memory_order_relaxed);
    map.file.store(static_cast<uint64_t>(file.tag) << 32 | file.index, std::memory_order_relaxed);
    map.place.store(start, std::memory_order_relaxed);
    map.start.store(start, std::memory_order_release);
    uint32_t used = used_.load(std::memory_order_relaxed);
    while (used <= i && !used_.compare_exchange_weak(used, i + 1, std::memory_order_release)) {
    }
    return;
  }
  overflowed_.store(true, std::memory_order_release);
}

SharedMaps::Hidden SharedMaps::Hide(uintptr_t start, size_t size) {
  Hidden hidden;
  const uint32_t used = used_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < used; ++i) {
    Map& map = maps_[i];
    const uintptr_t from = map.start.load(std::memory_order_acquire);
    if (from == 0 || from < start) continue;
    if (from + map.size.load(std::memory_order_relaxed) > start + size) continue;
    uintptr_t expected = from;
    if (map.start.compare_exchange_strong(expected, 0, std::memory_order_acq_rel)) {
      hidden.words_[i / Hidden::kWordBits] |= uint64_t{1} << i % Hidden::kWordBits;
    }
  }
  return hidden;
}

template <typename Action>
void SharedMaps::ForHidden(const Hidden& hidden, Action action) {
  for (uint32_t i = 0; i < kMost; ++i) {
    if ((hidden.words_[i / Hidden::kWordBits] >> i % Hidden::kWordBits & 1) != 0) action(maps_[i]);
  }
}

void SharedMaps::Drop(const Hidden& hidden) {
  ForHidden(hidden, [](Map& map) { map.taken.store(false, std::memory_order_release); });
}

void SharedMaps::Show(const Hidden& hidden) {
  ForHidden(hidden, [](Map& map) {
    map.start.store(map.place.load(std::memory_order_relaxed), std::memory_order_release);
  });
}

}  // namespace salius::preload
