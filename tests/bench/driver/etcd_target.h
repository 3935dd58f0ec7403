// etcd: Put of one key per writer, over gRPC. etcd keeps the old values; they are compacted before
// a round, so that its database does not grow without bound.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/bench_target.h"
#include "tests/bench/driver/etcd.grpc.pb.h"

namespace salius::bench {

class EtcdTarget : public cli::ClosedLoop {
 public:
  struct Plan {
    std::string server;  // host:port
    uint64_t size = 4096;
    uint64_t writers = 1;
  };
  static absl::StatusOr<std::unique_ptr<EtcdTarget>> Make(Plan plan);

 protected:
  absl::Status Prepare(size_t writer) override;
  absl::Status Operate(size_t writer) override;

 private:
  struct Writer {
    std::unique_ptr<etcdserverpb::KV::Stub> stub;
    etcdserverpb::PutRequest request;
    int64_t revision = 0;  // of the last Put
  };
  explicit EtcdTarget(Plan plan) : ClosedLoop(plan.writers), plan_(std::move(plan)) {}

  const Plan plan_;
  std::vector<Writer> writers_;
  int64_t compacted_ = 0;
};

}  // namespace salius::bench
