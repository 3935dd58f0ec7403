// PostgreSQL: a prepared INSERT of one row in a transaction of its own, one connection per writer.
// The table is emptied before a round.
#pragma once

#include <postgresql/libpq-fe.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench_target.h"

namespace salius::bench {

class PostgresTarget : public cli::ClosedLoop {
 public:
  struct Plan {
    std::string server;  // libpq's connection string
    uint64_t size = 4096;
    uint64_t writers = 1;
  };
  // Makes the table "bench" when there is none.
  static absl::StatusOr<std::unique_ptr<PostgresTarget>> Make(Plan plan);

 protected:
  absl::Status Prepare(size_t writer) override;
  absl::Status Operate(size_t writer) override;

 private:
  struct Finish {
    void operator()(PGconn* connection) const { PQfinish(connection); }
  };
  using Connection = std::unique_ptr<PGconn, Finish>;
  explicit PostgresTarget(Plan plan)
      : ClosedLoop(plan.writers), plan_(std::move(plan)), data_(plan_.size, 'x') {}

  const Plan plan_;
  const std::string data_;
  std::vector<Connection> connections_;
};

}  // namespace salius::bench
