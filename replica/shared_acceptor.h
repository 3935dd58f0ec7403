// The acceptor and the one lock around it.
//
// The receive loop holds the lock for one batch of datagrams. gRPC threads hold it for one call, or
// for one piece of a Fetch of at most kFetchPieceBytes. Under it there is no system call but the
// page faults of the arena and of the heap, no logging, and no other lock.
#pragma once

#include <cstddef>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "replica/acceptor.h"

namespace salius {

// Copying this much takes some 20 us: a reading recovery may add that much to a writer's latency.
inline constexpr size_t kFetchPieceBytes = size_t{128} << 10;

struct SharedAcceptor {
  SharedAcceptor(Arena& arena, const Acceptor::Options& options, int64_t now_ns,
                 Acceptor::AttachReport* report)
      : acceptor(arena, options, now_ns, report) {}

  absl::Mutex mutex;
  Acceptor acceptor ABSL_GUARDED_BY(mutex);
};

}  // namespace salius
