// The numbers under which the kernel knows objects of this process (node ids, file handles), and
// the objects behind them.
//
// A number is the index of a slot in its low 32 bits, and above them how often the slot was used
// before. It is never 0. A number that was given back leads nowhere, until its slot has been used
// 2^32 times more. The first number is 1, and an index is used again before a new one is taken.
//
// Slots lie in chunks, each as large as all before it. A chunk stays where it is until the table's
// end, so that Find takes no lock.
//
// Any number is safe to look up. The object is the caller's, and must not end while another thread
// that found it uses it: the kernel gives a number back only when every request that names it has
// been answered.
//
// Threads: any. Find: two loads and a check. Insert and Erase take a lock, which is a leaf.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"

namespace salius {

template <typename T>
class IdTable {
 public:
  IdTable() = default;
  ~IdTable() {
    for (const std::atomic<Slot*>& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
  }
  IdTable(const IdTable&) = delete;
  IdTable& operator=(const IdTable&) = delete;

  // Returns the number under which Find returns `object` until Erase.
  uint64_t Insert(T& object) {
    const absl::MutexLock lock(&mutex_);
    const uint64_t number = NextNumber();
    Slot& slot = MakeSlot(IndexOf(number));
    // Find reads the number first: once it sees this one, it also sees the object.
    slot.object.store(&object, std::memory_order_release);
    slot.number.store(number, std::memory_order_release);
    ++size_;
    return number;
  }

  // Returns the object with this number; null when the number is not in use.
  T* Find(uint64_t number) const {
    const Slot* const slot = FindSlot(IndexOf(number));
    if (slot == nullptr || slot->number.load(std::memory_order_acquire) != number) return nullptr;
    T* const object = slot->object.load(std::memory_order_acquire);
    // The object is at least as new as the number. If it is newer, its store came after the store
    // of another number (or of 0), which is then seen here.
    return slot->number.load(std::memory_order_relaxed) == number ? object : nullptr;
  }

  // Takes the number back, and returns the object that it had; null when it is not in use.
  T* Erase(uint64_t number) {
    const absl::MutexLock lock(&mutex_);
    T* const object = Find(number);
    if (object == nullptr) return nullptr;
    Free(*FindSlot(IndexOf(number)), number);
    return object;
  }

  // Takes all numbers back, and returns their objects.
  std::vector<T*> Clear() {
    const absl::MutexLock lock(&mutex_);
    std::vector<T*> objects;
    for (uint64_t index = 1; index < next_index_; ++index) {
      Slot& slot = *FindSlot(static_cast<uint32_t>(index));
      const uint64_t number = slot.number.load(std::memory_order_relaxed);
      if (number == 0) continue;
      objects.push_back(slot.object.load(std::memory_order_relaxed));
      Free(slot, number);
    }
    return objects;
  }

  // Returns how many numbers are in use.
  size_t size() const {
    const absl::MutexLock lock(&mutex_);
    return size_;
  }

 private:
  struct Slot {
    std::atomic<uint64_t> number{0};  // 0: free
    std::atomic<T*> object{nullptr};
  };

  static constexpr int kIndexBits = 32;
  static constexpr int kFirstChunkBits = 10;
  static constexpr size_t kChunks = kIndexBits - kFirstChunkBits + 1;

  static uint32_t IndexOf(uint64_t number) { return static_cast<uint32_t>(number); }
  static size_t ChunkOf(uint32_t index) {
    return static_cast<size_t>(std::bit_width(index >> kFirstChunkBits));
  }
  // Returns the first index of a chunk; it is also the chunk's size, but for chunk 0.
  static size_t BeginOf(size_t chunk) {
    return chunk == 0 ? 0 : size_t{1} << (kFirstChunkBits + chunk - 1);
  }

  Slot* FindSlot(uint32_t index) const {
    const size_t chunk = ChunkOf(index);
    // Pairs with MakeSlot: the slots were initialized before.
    Slot* const slots = chunks_[chunk].load(std::memory_order_acquire);
    return slots == nullptr ? nullptr : &slots[index - BeginOf(chunk)];
  }

  Slot& MakeSlot(uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const size_t chunk = ChunkOf(index);
    if (chunks_[chunk].load(std::memory_order_relaxed) == nullptr) {
      const size_t size = chunk == 0 ? size_t{1} << kFirstChunkBits : BeginOf(chunk);
      chunks_[chunk].store(new Slot[size], std::memory_order_release);
    }
    return *FindSlot(index);
  }

  uint64_t NextNumber() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (free_.empty()) {
      SALIUS_CHECK(next_index_ <= std::numeric_limits<uint32_t>::max(), "all numbers are in use");
      return next_index_++;
    }
    const uint64_t number = free_.back();
    free_.pop_back();
    return number;
  }

  void Free(Slot& slot, uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    slot.number.store(0, std::memory_order_relaxed);
    slot.object.store(nullptr, std::memory_order_release);  // Find sees the 0 with it
    free_.push_back(number + (uint64_t{1} << kIndexBits));
    --size_;
  }

  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  mutable absl::Mutex mutex_;
  uint64_t next_index_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<uint64_t> free_ ABSL_GUARDED_BY(mutex_);  // the next number of each free slot
  size_t size_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace salius
