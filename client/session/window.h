// The window: one slot for each record of (checkpoint, issued]. It is a ring of plain structs of
// fixed size and holds no pointer, so that it can lie in memory that processes share. A Window is
// the head of that memory; its slots follow it.
//
//     slot of seq s = s mod slots
//
//        checkpoint                            issued
//            |                                   |
//     ...  [ c ] [ c+1 ] [ c+2 ]  ...        [ issued ] [ free ] ...
//            |   '------------ the window ----------'
//            keeps its sum of bytes, so one slot is never used
//
// A process may be killed at any instruction: a slot is complete before `issued` covers it, and a
// cut is one store of `checkpoint`.
//
// pure: no thread, lock, socket or clock. The caller serialises all calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

#include "common/id_types.h"
#include "common/limits.h"
#include "common/require.h"

namespace salius {

// Bit i is for replica i.
using ReplicaMask = uint8_t;
static_assert(kMaxReplicas <= 8, "ReplicaMask has one bit per replica");
constexpr ReplicaMask ReplicaBit(size_t replica) { return static_cast<ReplicaMask>(1u << replica); }

class Window {
 public:
  struct Slot {
    uint64_t bytes_upto = 0;  // ring bytes of all records of the session up to this one
    int64_t issued_ns = 0;    // monotonic
    int64_t sendable_ns = 0;  // later than issued_ns when it was gathered
    ReplicaMask held = 0;     // the replicas that hold it
    bool stable = false;      // it is in the stable log
    bool stable_in_flight = false;
  };

  // Returns the size in bytes of a window of `slots` slots.
  static size_t BytesFor(uint32_t slots) { return sizeof(Window) + slots * sizeof(Slot); }
  // Makes an empty window in `memory`, which has BytesFor(slots) bytes and alignment kAlignment.
  // `slots`: a power of two, at least 2; the window takes one record less. Untouched memory stays
  // untouched until records come.
  static Window* Create(void* memory, uint32_t slots) { return new (memory) Window(slots); }
  static constexpr std::align_val_t kAlignment{64};

  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  Seq checkpoint() const { return checkpoint_.load(std::memory_order_acquire); }
  Seq issued() const { return issued_.load(std::memory_order_acquire); }
  // Returns the number of records in the window, and the most that there may be.
  uint64_t size() const { return issued() - checkpoint(); }
  uint64_t capacity() const { return mask_; }
  bool empty() const { return size() == 0; }
  bool full() const { return size() == capacity(); }

  // Returns the slot of a record of the window: checkpoint() < seq <= issued().
  Slot& At(Seq seq) { return slots()[seq & mask_]; }
  const Slot& At(Seq seq) const { return slots()[seq & mask_]; }
  // Returns the ring bytes of all records of the session up to `seq`. Counts at least those up to
  // the checkpoint, and at most those issued.
  uint64_t BytesUpTo(Seq seq) const {
    return At(std::min(std::max(seq, checkpoint()), issued())).bytes_upto;
  }
  // Returns the ring bytes of the window's records.
  uint64_t bytes() const { return At(issued()).bytes_upto - At(checkpoint()).bytes_upto; }

  // Adds the next record, issued at `now` (monotonic ns); the window must not be full. Returns its
  // seq.
  Seq Add(uint64_t ring_bytes, int64_t now) {
    SALIUS_REQUIRE(!full());
    const Seq seq = issued() + 1;
    const uint64_t before = At(seq - 1).bytes_upto;
    Slot& slot = At(seq);
    slot = Slot();
    slot.bytes_upto = before + ring_bytes;
    slot.issued_ns = slot.sendable_ns = now;
    issued_.store(seq, std::memory_order_release);
    return seq;
  }
  // Drops the records up to `checkpoint`, which lies in [checkpoint(), issued()].
  void CutTo(Seq checkpoint) {
    SALIUS_REQUIRE(checkpoint >= this->checkpoint() && checkpoint <= issued());
    checkpoint_.store(checkpoint, std::memory_order_release);
  }

  // Notes that `replicas` hold first..last, as far as those are in the window.
  void Hold(Seq first, Seq last, ReplicaMask replicas) {
    last = std::min(last, issued());
    for (Seq seq = std::max(first, checkpoint() + 1); seq <= last; ++seq) {
      At(seq).held |= replicas;
    }
  }
  // Notes that `replicas` hold no record any more.
  void Forget(ReplicaMask replicas) {
    for (Seq seq = checkpoint() + 1; seq <= issued(); ++seq) {
      At(seq).held &= static_cast<ReplicaMask>(~replicas);
    }
  }

 private:
  explicit Window(uint32_t slots) : mask_(slots - 1) {
    SALIUS_REQUIRE(slots >= 2 && std::has_single_bit(slots));
    At(0) = Slot();
  }
  Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }
  const Slot* slots() const { return reinterpret_cast<const Slot*>(this + 1); }

  const uint64_t mask_;
  std::atomic<Seq> checkpoint_{0};
  std::atomic<Seq> issued_{0};
};
static_assert(std::is_standard_layout_v<Window> && std::is_trivially_destructible_v<Window>);
static_assert(std::is_trivially_copyable_v<Window::Slot>);
static_assert(sizeof(Window) % alignof(Window::Slot) == 0);
static_assert(std::atomic<Seq>::is_always_lock_free);

// A window in memory of this process alone.
struct DeleteWindow {
  void operator()(Window* window) const { ::operator delete(window, Window::kAlignment); }
};
using OwnedWindow = std::unique_ptr<Window, DeleteWindow>;
inline OwnedWindow NewWindow(uint32_t slots) {
  return OwnedWindow(
      Window::Create(::operator new(Window::BytesFor(slots), Window::kAlignment), slots));
}

}  // namespace salius
