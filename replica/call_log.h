// The control calls that changed or read a log: the last ones of each kind and result, and their
// numbers as metrics. A flood of refused calls does not displace the accepted ones.
//
// Threads: all functions from any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "common/metrics.h"

namespace salius {

enum class CallKind { kOpen, kFetch, kFence, kDrop, kForget };
inline constexpr size_t kCallKinds = 5;

// Returns "open", "fetch", "fence", "drop" or "forget".
std::string_view CallName(CallKind kind);

struct CallEntry {
  uint64_t at_unix_ms = 0;
  CallKind kind = CallKind::kOpen;
  bool accepted = false;
  std::string volume;  // 16 bytes; others when the caller sent others.
  Epoch epoch = 0;     // 0: the call names none.
  std::string identity;  // "client/web1"; empty: none.
  std::string peer;    // "10.0.0.1:2345"; empty: unknown.
  std::string reason;  // Why it was refused; empty: it was accepted.
};

class CallLog {
 public:
  // Calls that are kept of each kind and result.
  static constexpr size_t kKept = 8;
  // Bytes that are kept of a text of a call.
  static constexpr size_t kMaxText = 200;

  // Identities that have counters of their own; others share one.
  static constexpr size_t kMaxIdentities = 1000;

  // The counters are those of the process: salius_replica_control_calls_total, and
  // salius_replica_identity_calls_total by identity.
  CallLog();

  // Counts the call and keeps it.
  void Add(CallEntry entry);
  // Returns the kept calls, the newest first.
  std::vector<CallEntry> Recent() const;

 private:
  void CountIdentity(const CallEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A call with its place in the order of all: a clock may be set back.
  struct Numbered {
    uint64_t number = 0;
    CallEntry entry;
  };
  // The calls of one kind with one result.
  struct Calls {
    Counter* total = nullptr;
    std::deque<Numbered> last;  // The newest last.
  };

  mutable absl::Mutex mutex_;
  // By kind, refused before accepted.
  std::array<Calls, 2 * kCallKinds> calls_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::array<Counter*, 2>> identities_ ABSL_GUARDED_BY(mutex_);
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace salius
