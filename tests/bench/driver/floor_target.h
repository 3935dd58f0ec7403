// The floors without FUSE: what is sent to echo servers and awaited, and what is written to a
// backing file meanwhile. Nothing that replicates to f of m machines over UDP can take less.
#pragma once

#include <netinet/in.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench_target.h"

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
  };
  // INVALID_ARGUMENT when there are fewer servers than acks.
  static absl::StatusOr<std::unique_ptr<FloorTarget>> Make(Plan plan);
  ~FloorTarget() override;

 protected:
  absl::Status Operate(size_t writer) override;

 private:
  struct Writer {
    explicit Writer(cli::QuorumPing p) : ping(std::move(p)) {}
    cli::QuorumPing ping;
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
