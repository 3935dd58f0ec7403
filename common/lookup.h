// Asks the resolver for a host's addresses without waiting for it: a name server that is gone lets
// getaddrinfo(3) take a minute, and nothing can end it.
//
// Threads: thread safe. The one that asks is detached; it touches nothing but its own answer, also
// when nobody wants that any more.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/net.h"

namespace salius {

class Lookup {
 public:
  using Answer = absl::StatusOr<std::vector<SocketAddress>>;

  // Begins to ask: ResolveAll(host_port, family). UNAVAILABLE too when no thread can be started.
  static std::shared_ptr<Lookup> Start(const HostPort& host_port, int family);

  // The answer, once it is there.
  std::optional<Answer> answer() const;

 private:
  mutable absl::Mutex mutex_;
  std::optional<Answer> answer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace salius
