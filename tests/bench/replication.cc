#include "tests/bench/replication.h"

#include <utility>

#include "common/check.h"
#include "common/file.h"

namespace salius::bench {

void Replication::Declare(Options& options) {
  options.Number("replicas", "M", &replicas_, 0, 64, "echo servers to spawn");
  options.List("servers", "HOST:PORT,...", &places_, "echo servers that there are");
  options.Number("acks", "F", &acks_, 1, 64, "answers that are awaited (2)");
}

absl::Status Replication::Start() {
  SALIUS_ASSIGN_OR_RETURN(addresses_, cli::ResolveEcho(places_));
  SALIUS_ASSIGN_OR_RETURN(cli::EchoServers spawned, cli::EchoServers::Spawn(replicas_));
  spawned_.emplace(std::move(spawned));
  addresses_.insert(addresses_.end(), spawned_->addresses().begin(), spawned_->addresses().end());
  if (!on()) return absl::OkStatus();
  return cli::QuorumPing::Connect(addresses_, acks_).status();
}

// Returns the calling thread's ping; a process that cannot make one ends.
cli::QuorumPing& Replication::Ping() const {
  thread_local absl::StatusOr<cli::QuorumPing> ping = cli::QuorumPing::Connect(addresses_, acks_);
  SALIUS_CHECK_OK(ping);
  return *ping;
}

absl::Status Replication::Write(absl::Span<const uint8_t> data,
                                const std::function<absl::Status()>& meanwhile) const {
  return Ping().ExchangeAll(data, meanwhile);
}

absl::Status Replication::Sync(size_t bytes) const {
  thread_local std::vector<uint8_t> data;  // only grows: no memory is touched for the first time
  if (data.size() < bytes) data.resize(bytes);
  return Ping().ExchangeAll(absl::MakeConstSpan(data).first(bytes),
                            [] { return absl::OkStatus(); });
}

}  // namespace salius::bench
