// Connects a recovery to simulated replicas.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "recovery/agree/replica_client.h"
#include "tests/sim/replica_host.h"

namespace salius::sim {

class HostConnector : public recovery::ReplicaConnector {
 public:
  struct World {
    std::function<int64_t()> now;
    std::function<bool(size_t)> reachable;  // whether this replica answers now
    std::function<bool()> stream_breaks;    // before the next chunk of a fetch
  };
  // `hosts` are the replicas with these `addresses`. All outlive it.
  HostConnector(const std::vector<std::unique_ptr<ReplicaHost>>& hosts,
                const std::vector<std::string>& addresses, World world)
      : hosts_(hosts), addresses_(addresses), world_(std::move(world)) {}

  std::unique_ptr<recovery::ReplicaClient> Connect(const std::string& address) override;

 private:
  class Client;
  const std::vector<std::unique_ptr<ReplicaHost>>& hosts_;
  const std::vector<std::string>& addresses_;
  const World world_;
};

}  // namespace salius::sim
