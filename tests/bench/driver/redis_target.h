// Redis: SET of one key per writer, then WAIT for replicas, both in one send. The value begins with
// the number of the operation in 16 digits, so that the last acknowledged one can be found again.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench_target.h"
#include "tests/bench/driver/line_connection.h"

namespace salius::bench {

class RedisTarget : public cli::ClosedLoop {
 public:
  struct Plan {
    std::string server;  // host:port
    uint64_t acks = 0;   // replicas that WAIT must report; 0: no WAIT at all
    uint64_t size = 4096;
    uint64_t writers = 1;
  };
  static absl::StatusOr<std::unique_ptr<RedisTarget>> Make(Plan plan);

 protected:
  absl::Status Operate(size_t writer) override;

 private:
  struct Writer {
    LineConnection connection;
    std::string request;  // ready to be sent; only the number changes
    size_t number_at;     // its place there
    uint64_t number = 0;
  };
  explicit RedisTarget(Plan plan) : ClosedLoop(plan.writers), plan_(std::move(plan)) {}

  const Plan plan_;
  std::vector<Writer> writers_;
};

}  // namespace salius::bench
