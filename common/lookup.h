// Asks the resolver for a host's addresses without waiting for it. When the name server is gone,
// getaddrinfo(3) takes up to a minute, and nothing can end it.
//
// Threads: thread safe. The thread that asks is detached. It touches nothing but its own answer,
// also when the answer is not wanted any more.
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

  // Starts ResolveAll(host_port, family). UNAVAILABLE too when no thread can be started.
  static std::shared_ptr<Lookup> Start(const HostPort& host_port, int family);

  // Returns the answer, once it is there.
  std::optional<Answer> answer() const;

 private:
  mutable absl::Mutex mutex_;
  std::optional<Answer> answer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace salius
