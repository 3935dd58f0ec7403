#include "tests/bench/driver/etcd_target.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "transport/grpc_factory.h"

namespace salius::bench {
namespace {

constexpr std::chrono::seconds kDeadline(30);

absl::Status FromGrpc(const grpc::Status& status, const char* what) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(what, ": ", status.error_message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<EtcdTarget>> EtcdTarget::Make(Plan plan) {
  std::unique_ptr<EtcdTarget> target(new EtcdTarget(std::move(plan)));
  const Plan& made = target->plan_;
  for (uint64_t i = 0; i < made.writers; ++i) {
    Writer& writer = target->writers_.emplace_back();
    writer.stub = etcdserverpb::KV::NewStub(TcpChannel(made.server, {.own_connection = true}));
    writer.request.set_key(absl::StrCat("bench:", i));
    writer.request.set_value(std::string(made.size, 'x'));
    SALIUS_RETURN_IF_ERROR(target->Operate(i));  // connects
  }
  return target;
}

absl::Status EtcdTarget::Prepare(size_t index) {
  if (index != 0) return absl::OkStatus();
  int64_t newest = 0;
  for (const Writer& writer : writers_) newest = std::max(newest, writer.revision);
  if (newest <= compacted_) return absl::OkStatus();
  compacted_ = newest;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  etcdserverpb::CompactionRequest request;
  request.set_revision(newest);
  request.set_physical(true);
  etcdserverpb::CompactionResponse response;
  return FromGrpc(writers_[0].stub->Compact(&context, request, &response), "Compact");
}

absl::Status EtcdTarget::Operate(size_t index) {
  Writer& writer = writers_[index];
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
  etcdserverpb::PutResponse response;
  SALIUS_RETURN_IF_ERROR(FromGrpc(writer.stub->Put(&context, writer.request, &response), "Put"));
  writer.revision = response.header().revision();
  return absl::OkStatus();
}

}  // namespace salius::bench
