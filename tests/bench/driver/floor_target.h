// The floors without FUSE: data sent to echo servers, their answers, and a write to a backing file
// meanwhile. No replication to f of m machines over UDP can take less.
#pragma once

#include <netinet/in.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench_target.h"
#include "tests/bench/ring.h"

namespace salius::bench {

class FloorTarget : public cli::ClosedLoop {
 public:
  struct Plan {
    std::vector<sockaddr_in> servers;
    uint64_t acks = 1;
    uint64_t size = 4096;  // bytes per operation: datagrams of kMaxPingBytes at most, one by one
    uint64_t writers = 1;
    // A directory: every operation is also a buffered overwrite of a file there; "": none.
    std::string backing;
    uint64_t span = 16 << 20;  // bytes of each file that are overwritten in a circle
    uint64_t keep = 0;  // each writer keeps its data in a ring of this many bytes (ring.h)
  };
  // Connects every writer. INVALID_ARGUMENT when there are fewer servers than acks.
  static absl::StatusOr<std::unique_ptr<FloorTarget>> Make(Plan plan);
  ~FloorTarget() override;

 protected:
  absl::Status Operate(size_t writer) override;

 private:
  struct Writer {
    Writer(cli::QuorumPing p, uint64_t keep) : ping(std::move(p)), ring(keep) {}
    cli::QuorumPing ping;
    Ring ring;
    std::string path;
    UniqueFd fd;
    uint64_t position = 0;
  };
  explicit FloorTarget(Plan plan)
      : ClosedLoop(plan.writers), plan_(std::move(plan)), data_(plan_.size, 'x') {}

  const Plan plan_;
  const std::vector<uint8_t> data_;
  std::vector<Writer> writers_;
};

}  // namespace salius::bench
