// The shared maps of files of the volume in this process, for mprotect(2) and msync(2).
//
// A fixed table without a lock: signal handlers and allocators may use it. It may say too
// much (a map that is gone, in part or in whole, when another took its place), never too little:
// when it is full, `overflowed` says that any address may be such a map.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client/direct/process/files.h"

namespace salius::preload {

class SharedMaps {
 private:
  static constexpr uint32_t kMost = 256;

 public:
  // The maps that one call hid: a bit for each.
  class Hidden {
   private:
    friend class SharedMaps;
    static constexpr uint32_t kWordBits = 64;
    uint64_t words_[kMost / kWordBits] = {};
  };

  void Add(uintptr_t start, size_t size, direct::File file);
  // Removes the maps that lie wholly in [start, start + size).
  void Remove(uintptr_t start, size_t size) { Drop(Hide(start, size)); }

  // Hides the maps that lie wholly in [start, start + size): for ForEach they are gone.
  Hidden Hide(uintptr_t start, size_t size);
  // Removes them.
  void Drop(const Hidden& hidden);
  // Takes the hiding back.
  void Show(const Hidden& hidden);

  bool empty() const { return used_.load(std::memory_order_acquire) == 0; }
  bool overflowed() const { return overflowed_.load(std::memory_order_acquire); }

  // Calls `action(file)` for each map that shares a byte with [start, start + size).
  template <typename Action>
  void ForEach(uintptr_t start, size_t size, Action action) const {
    const uint32_t used = used_.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < used; ++i) {
      const Map& map = maps_[i];
      const uintptr_t from = map.start.load(std::memory_order_acquire);
      if (from == 0) continue;
      const size_t length = map.size.load(std::memory_order_relaxed);
      if (from < start + size && start < from + length) action(FileOf(map));
    }
  }

 private:
  struct Map {
    std::atomic<uintptr_t> start{0};  // 0: free or hidden; stored last
    std::atomic<bool> taken{false};   // not free
    std::atomic<uintptr_t> place{0};  // its start, also while it is hidden
    std::atomic<size_t> size{0};
    std::atomic<uint64_t> file{0};
  };
  static direct::File FileOf(const Map& map) {
    const uint64_t word = map.file.load(std::memory_order_relaxed);
    return {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)};
  }

  template <typename Action>
  void ForHidden(const Hidden& hidden, Action action);

  Map maps_[kMost];
  std::atomic<uint32_t> used_{0};  // no entry at or above it was ever taken
  std::atomic<bool> overflowed_{false};
};

}  // namespace salius::preload
