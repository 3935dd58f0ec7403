// How an inode is cached, and what is known about its privileges: the front's word of a node
// (Volume::FrontWord).
//
// Direct or cached is decided for a whole phase, from the first open to the last close, and never
// mixed (docs/mount.md, "Requests"): a direct write beside cached readers would race with the page
// cache. A phase is direct when its first open asks for it (O_SYNC, O_DSYNC, O_DIRECT): then a
// synchronous write is one crossing, not a WRITE and an FSYNC.
//
//   bits 0..31  open files of this phase
//   bit 32      the phase is direct
//   bit 33      the page cache is suspect: a direct phase was, so a map may have left old pages
//   there. The
//               next cached phase never asks the kernel to keep the cache; bit 33 falls when it
//               ends
//   bit 34      checked: neither suid, sgid nor file capability, so a write has nothing to take
//   away
//
// pure: no lock, socket or clock; atomic, from any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace salius {

class OpenState {
 public:
  struct Grant {
    bool direct = false;
    bool keep_cache = false;
  };

  explicit OpenState(std::atomic<uint64_t>& word) : word_(word) {}

  // Counts one open. `wants_direct`: opened synchronous or O_DIRECT, and the kernel can map such
  // files.
  Grant Open(bool wants_direct) {
    uint64_t old = word_.load(std::memory_order_relaxed);
    uint64_t next;
    do {
      next = old + 1;
      if ((old & kCount) == 0) {
        next = wants_direct ? next | kDirect | kSuspect : next & ~kDirect;
      }
    } while (!word_.compare_exchange_weak(old, next, std::memory_order_acq_rel));
    const bool direct = (next & kDirect) != 0;
    return {.direct = direct, .keep_cache = !direct && (next & kSuspect) == 0};
  }

  // Counts one close.
  void Close() {
    uint64_t old = word_.load(std::memory_order_relaxed);
    uint64_t next;
    do {
      next = old - 1;
      if ((next & kCount) == 0 && (old & kDirect) == 0) next &= ~kSuspect;
    } while (!word_.compare_exchange_weak(old, next, std::memory_order_acq_rel));
  }

  uint32_t open_files() const {
    return static_cast<uint32_t>(word_.load(std::memory_order_acquire) & kCount);
  }

  // The kernel holds the inode's lock around writes and around what grants privileges, so these
  // need no more than an atomic bit.
  bool known_unprivileged() const {
    return (word_.load(std::memory_order_acquire) & kUnprivileged) != 0;
  }
  void NoteUnprivileged() { word_.fetch_or(kUnprivileged, std::memory_order_acq_rel); }
  void ForgetPrivileges() { word_.fetch_and(~kUnprivileged, std::memory_order_acq_rel); }

 private:
  static constexpr uint64_t kCount = 0xffffffff;
  static constexpr uint64_t kDirect = uint64_t{1} << 32;
  static constexpr uint64_t kSuspect = uint64_t{1} << 33;
  static constexpr uint64_t kUnprivileged = uint64_t{1} << 34;

  std::atomic<uint64_t>& word_;
};

}  // namespace salius
