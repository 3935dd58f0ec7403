// NATS JetStream: a message of `size` bytes published to a stream, and the stream's
// acknowledgement. In NATS' own text protocol, one connection per writer.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench_target.h"
#include "tests/bench/driver/line_connection.h"

namespace salius::bench {

class NatsTarget : public cli::ClosedLoop {
 public:
  struct Plan {
    std::string server;   // host:port
    std::string subject;  // of an existing stream
    uint64_t size = 4096;
    uint64_t writers = 1;
  };
  static absl::StatusOr<std::unique_ptr<NatsTarget>> Make(Plan plan);

 protected:
  absl::Status Operate(size_t writer) override;

 private:
  struct Writer {
    LineConnection connection;
    std::string request;
  };
  explicit NatsTarget(Plan plan) : ClosedLoop(plan.writers), plan_(std::move(plan)) {}
  static absl::StatusOr<std::string> ReadMessage(LineConnection& connection);

  const Plan plan_;
  std::vector<Writer> writers_;
};

}  // namespace salius::bench
