// A table of pipes and sockets that gated processes made, in memory that they share. Each has a word
// of its device and inode. A new one may take the place of an older one, which is outside then: that
// costs waiting and no promise.
//
// Needs the standard library only. Any thread may call any function.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace salius::gate {

inline constexpr size_t kInsideSlots = 4096;  // a power of two

class Inside {
 public:
  // `slots`: kInsideSlots of them, 0 at first.
  explicit Inside(std::atomic<uint64_t>* slots) : slots_(slots) {}

  void Add(uint64_t device, uint64_t inode) const {
    const uint64_t word = WordOf(device, inode);
    if (word == 0) return;
    const size_t first = FirstPlace(word);
    for (size_t i = 0; i < kPlaces; ++i) {
      uint64_t free = 0;
      if (slots_[first + i].compare_exchange_strong(free, word) || free == word) return;
    }
    slots_[first + inode % kPlaces].store(word);
  }

  bool Has(uint64_t device, uint64_t inode) const {
    const uint64_t word = WordOf(device, inode);
    if (word == 0) return false;
    const size_t first = FirstPlace(word);
    for (size_t i = 0; i < kPlaces; ++i) {
      if (slots_[first + i].load() == word) return true;
    }
    return false;
  }

 private:
  // A new pipe or socket may have any of this many places.
  static constexpr size_t kPlaces = 8;
  static constexpr unsigned kInodeBits = 44;

  // Returns the word of a pipe or socket; 0: it has none.
  static uint64_t WordOf(uint64_t device, uint64_t inode) {
    if (inode >> kInodeBits != 0 || device >> (64 - kInodeBits) != 0) return 0;
    return device << kInodeBits | inode;
  }
  static size_t FirstPlace(uint64_t word) {
    return (word * 0x9E3779B97F4A7C15) >> 32 & (kInsideSlots - 1) & ~(kPlaces - 1);
  }

  std::atomic<uint64_t>* slots_;
};

}  // namespace salius::gate
