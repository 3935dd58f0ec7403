// Accepts connections for a gRPC server, which gets each as a descriptor.
//
// gRPC 1.51 has listeners of its own, but one of those ends for good when accept(2) fails, as it does
// without a free descriptor. This one waits, and accepts again. It closes connections beyond the bounds
// of transport/connection_limits.h at once.
//
// Threads: one that accepts, and calls `take`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/metrics.h"
#include "common/net.h"
#include "transport/connection_limits.h"

namespace salius {

class ConnectionAcceptor {
 public:
  // Takes an accepted connection, which does not block.
  using Take = std::function<void(UniqueFd connection)>;
  // Returns the host that an accepted connection counts for.
  using HostOf = std::function<std::string(int connection, const SocketAddress& peer)>;

  // Accepts at `listener`, a socket that listens and does not block, until Stop(). `place` names it in
  // the log. The bounds follow from the process's present RLIMIT_NOFILE. Errors: those of eventfd(2).
  static absl::StatusOr<std::unique_ptr<ConnectionAcceptor>> Start(std::string place,
                                                                   UniqueFd listener,
                                                                   HostOf host_of, Take take,
                                                                   Clock& clock = SystemClock());
  // As Stop().
  ~ConnectionAcceptor();
  ConnectionAcceptor(const ConnectionAcceptor&) = delete;
  ConnectionAcceptor& operator=(const ConnectionAcceptor&) = delete;

  // Closes the listener. Afterwards no `take` runs.
  void Stop();

 private:
  ConnectionAcceptor(std::string place, UniqueFd listener, UniqueFd wake, HostOf host_of, Take take,
                     Clock& clock);
  void Run();
  void Admit(UniqueFd connection, const SocketAddress& peer);
  // Returns whether the log may have another line about connections.
  bool MayLog();

  const std::string place_;
  UniqueFd listener_;
  UniqueFd wake_;
  const HostOf host_of_;
  const Take take_;
  Clock& clock_;
  ConnectionLimits limits_;  // The accepting thread's.
  int64_t next_line_ns_ = 0;
  Counter& closed_of_host_;
  Counter& closed_of_all_;
  Counter& failed_;
  std::thread thread_;
};

}  // namespace salius
