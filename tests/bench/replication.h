// How the floors' file systems make writes durable: each write goes to echo servers
// (client/cli/echo.h), and --acks answers are awaited. Shared by mount_floor and passthrough_fs.
//
// Threads: any may call Write and Sync; each has its own connection to the servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/cli/echo.h"
#include "common/options.h"

namespace salius::bench {

class Replication {
 public:
  // Declares --replicas, --servers and --acks; this must live until they are parsed.
  void Declare(Options& options);
  // Starts the servers, or finds the existing ones. It forks: call it before any thread is started.
  // INVALID_ARGUMENT when there are fewer of them than --acks.
  absl::Status Start();
  // Returns whether writes are replicated: they are not without servers.
  bool on() const { return !addresses_.empty(); }

  // Sends `data` and returns with enough answers; calls `meanwhile` once while it waits. Errors:
  // those of `meanwhile`, or DEADLINE_EXCEEDED when the servers do not answer.
  absl::Status Write(absl::Span<const uint8_t> data,
                     const std::function<absl::Status()>& meanwhile) const;
  // Sends `bytes` that were written before, all together.
  absl::Status Sync(size_t bytes) const;

 private:
  cli::QuorumPing& Ping() const;

  uint64_t replicas_ = 0;
  std::vector<std::string> places_;
  uint64_t acks_ = 2;
  std::optional<cli::EchoServers> spawned_;
  std::vector<sockaddr_in> addresses_;
};

}  // namespace salius::bench
