// The gate page of a mount: what a gated process must know before it makes an output. The daemon
// keeps it true, and gated processes map it read-only.
//
// An output may be made when `durable >= issued`, with `issued` read first. The daemon stores
// `issued` before it answers the request that issued the record. So a process that reads the page
// after its own call has returned, or after it has seen the effect of another gated process's call,
// finds a record's number there.
//
// The memory is a memfd that is sealed against writes by others (F_SEAL_FUTURE_WRITE). One page;
// the bytes behind the fields are 0. Offsets and numbers are never changed or reused.
//
// Needs the standard library only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace salius::gate {

inline constexpr uint64_t kPageMagic = 0x3145544147414C53;  // "SLAGATE1"
inline constexpr uint32_t kPageVersion = 1;
inline constexpr size_t kPageBytes = 4096;
// A value of Page::mapped: nothing is granted any more, so each sync asks the daemon.
inline constexpr uint32_t kUncounted = UINT32_MAX;

struct Page {
  uint64_t magic = kPageMagic;
  uint32_t version = kPageVersion;
  uint32_t reserved = 0;
  std::atomic<uint64_t> issued{0};   // the last record that was issued
  std::atomic<uint64_t> durable{0};  // the last one that is durable, with all before it
  std::atomic<uint32_t> failed{0};   // 1: the volume has failed, and `durable` stays
  // A futex word: it changes, and its sleepers are woken, when a record that an output waits for
  // has become durable, or never will.
  std::atomic<uint32_t> news{0};
  // It changes before the kernel gets an answer with which a file may get pages there that are newer
  // than the daemon's (a shared map). A grant of early return from before the change has ended. 0: the
  // daemon does not count; kUncounted: for good, after EndGrants or at the count's end.
  std::atomic<uint32_t> mapped{1};
  uint32_t reserved_too = 0;

  // Stores the marks of the session.
  void Store(uint64_t issued_now, uint64_t durable_now) {
    issued.store(issued_now, std::memory_order_release);
    durable.store(durable_now, std::memory_order_release);
  }
  void CountMapped() {
    uint32_t now = mapped.load(std::memory_order_relaxed);
    while (now != kUncounted &&
           !mapped.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel)) {
    }
  }
  // Ends early return without a request, for good: a sync shall get the daemon's error.
  void EndGrants() { mapped.store(kUncounted, std::memory_order_release); }
  // Returns the last record that an output made now shows, if that is not durable; 0: it may be
  // made.
  uint64_t AwaitedByOutput() const {
    const uint64_t upto = issued.load(std::memory_order_acquire);
    return durable.load(std::memory_order_acquire) >= upto ? 0 : upto;
  }
};
static_assert(sizeof(Page) == 48 && offsetof(Page, issued) == 16 && offsetof(Page, durable) == 24 &&
              offsetof(Page, failed) == 32 && offsetof(Page, news) == 36 &&
              offsetof(Page, mapped) == 40);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace salius::gate
