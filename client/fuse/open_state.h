// The front's word of a node (Node::front_word): how its inode is cached, and facts about its
// pages and privileges.
//
// Direct or cached is decided for a whole phase, from the first open to the last close, and never
// mixed (docs/mount-internals.md): a direct write beside cached readers would race with the page
// cache. A phase is direct when its first open asks for it (O_SYNC, O_DSYNC, O_DIRECT): then a
// synchronous write is one crossing, not a WRITE and an FSYNC.
//
// The kernel mixes them all the same. An O_DIRECT handle of a cached phase writes past the page
// cache: there the kernel drops the pages of the range before and after the write, unless the write
// is asynchronous (connection.cc). A map of a direct phase fills the page cache: there the kernel
// drops pages only before it sends the WRITE, and pages that a map reads between that and the write
// are old.
//
//   bits 0..31  open files of this phase
//   bit 32      the phase is direct
//   bit 33      the page cache is suspect: there was a direct phase, so a map may have left old
//               pages there. The next cached phase never asks the kernel to keep the cache; its end
//               clears the bit
//   bit 34      checked: neither suid, sgid nor file capability, so a write has nothing to remove
//   bit 35      filled: the phase is direct, and the kernel has read pages into its cache
//   bit 36      stored: the kernel has written pages back in this phase, so a shared map is stored
//               into
//   bit 37      looked sparse: attributes with fewer blocks than the size were sent for this node
//   bit 38      new mode: an access ACL changed the mode, and no answer has told the kernel since
//               that it takes in any case
//   bits 40..63 open files of this phase that read and write, and so may have such a map
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
    bool newly_mapped = false;  // MayHaveDirtyPages from now on, and not before
  };

  explicit OpenState(std::atomic<uint64_t>& word) : word_(word) {}

  // Counts one open. `wants_direct`: opened synchronous or O_DIRECT, and the kernel can map such
  // files. `reads_and_writes`: opened O_RDWR.
  Grant Open(bool wants_direct, bool reads_and_writes) {
    uint64_t old = word_.load(std::memory_order_relaxed);
    uint64_t next;
    do {
      next = old + 1 + (reads_and_writes ? kOneReadWrite : 0);
      if ((old & kCount) == 0) {
        next &= ~(kFilled | kStored);
        next = wants_direct ? next | kDirect | kSuspect : next & ~kDirect;
      }
    } while (!word_.compare_exchange_weak(old, next, std::memory_order_acq_rel));
    const bool direct = (next & kDirect) != 0;
    return {.direct = direct,
            .keep_cache = !direct && (next & kSuspect) == 0,
            .newly_mapped = MayBeDirty(next) && !MayBeDirty(old)};
  }

  // Counts one close of a file that was opened with the same `reads_and_writes`.
  void Close(bool reads_and_writes) {
    uint64_t old = word_.load(std::memory_order_relaxed);
    uint64_t next;
    do {
      next = old - 1 - (reads_and_writes ? kOneReadWrite : 0);
      if ((next & kCount) == 0 && (old & kDirect) == 0) next &= ~kSuspect;
    } while (!word_.compare_exchange_weak(old, next, std::memory_order_acq_rel));
  }

  uint32_t open_files() const {
    return static_cast<uint32_t>(word_.load(std::memory_order_acquire) & kCount);
  }

  // Notes that the kernel fills pages by this request. To be called before the file is read.
  // Returns whether MayHaveDirtyPages from now on, and not before.
  bool NoteFill() {
    if (!Has(kDirect) || Has(kFilled)) return false;
    const uint64_t old = word_.fetch_or(kFilled, std::memory_order_acq_rel);
    return MayBeDirty(old | kFilled) && !MayBeDirty(old);
  }
  // Returns whether the page cache may hold bytes that a write past it has replaced, which the
  // kernel does not drop alone. To be called after the write.
  bool filled() const { return Has(kFilled); }

  // Notes that the kernel has written a page back.
  void NoteStore() { Set(kStored); }
  bool stored() const { return Has(kStored); }
  // Returns whether the kernel may hold pages that are newer than the file: a shared map needs a
  // handle that reads and writes. A cached phase may have kept pages of the one before.
  bool MayHaveDirtyPages() const {
    return MayBeDirty(word_.load(std::memory_order_acquire));
  }

  void NoteSparse() { Set(kSparse); }
  bool looked_sparse() const { return Has(kSparse); }

  void NoteNewMode() { Set(kNewMode); }
  // Notes that the kernel gets the mode with an answer to SETATTR, which it takes in any case.
  void NoteKnownMode() {
    if (Has(kNewMode)) word_.fetch_and(~kNewMode, std::memory_order_acq_rel);
  }
  // Returns whether the kernel may need the mode from an answer to GETATTR.
  bool has_new_mode() const { return Has(kNewMode); }

  // The kernel holds the inode's lock around writes and around what grants privileges, so these
  // need no more than an atomic bit.
  bool known_unprivileged() const { return Has(kUnprivileged); }
  void NoteUnprivileged() { word_.fetch_or(kUnprivileged, std::memory_order_acq_rel); }
  void ForgetPrivileges() { word_.fetch_and(~kUnprivileged, std::memory_order_acq_rel); }

 private:
  static constexpr uint64_t kCount = 0xffffffff;
  static constexpr uint64_t kDirect = uint64_t{1} << 32;
  static constexpr uint64_t kSuspect = uint64_t{1} << 33;
  static constexpr uint64_t kUnprivileged = uint64_t{1} << 34;
  static constexpr uint64_t kFilled = uint64_t{1} << 35;
  static constexpr uint64_t kStored = uint64_t{1} << 36;
  static constexpr uint64_t kSparse = uint64_t{1} << 37;
  static constexpr uint64_t kNewMode = uint64_t{1} << 38;
  static constexpr uint64_t kOneReadWrite = uint64_t{1} << 40;

  static bool MayBeDirty(uint64_t word) {
    return word >= kOneReadWrite && ((word & kDirect) == 0 || (word & kFilled) != 0);
  }
  bool Has(uint64_t bit) const { return (word_.load(std::memory_order_acquire) & bit) != 0; }
  // Sets a bit. A look is cheaper than a change, and nearly always enough.
  void Set(uint64_t bit) {
    if (!Has(bit)) word_.fetch_or(bit, std::memory_order_acq_rel);
  }

  std::atomic<uint64_t>& word_;
};

}  // namespace salius
