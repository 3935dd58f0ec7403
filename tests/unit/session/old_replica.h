// A replica of a version that seals nothing, at its unix socket.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/net.h"
#include "proto/control.grpc.pb.h"
#include "transport/local_server.h"
#include "transport/local_socket.h"

namespace salius {

// Answers the control calls of such a version, by those of a replica without keys at 127.0.0.1.
class OldReplica final : public control::Replica::Service {
 public:
  explicit OldReplica(uint16_t port)
      // Not TcpChannel, which would find the unix socket.
      : stub_(control::Replica::NewStub(grpc::CreateChannel(
            absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()))) {}

 private:
  grpc::Status OpenSession(grpc::ServerContext*, const control::OpenSessionRequest* request,
                           control::OpenSessionResponse* response) override {
    grpc::ClientContext context;
    return stub_->OpenSession(&context, *request, response);
  }
  grpc::Status Inventory(grpc::ServerContext*, const control::InventoryRequest* request,
                         control::InventoryResponse* response) override {
    grpc::ClientContext context;
    return stub_->Inventory(&context, *request, response);
  }
  grpc::Status DropVolume(grpc::ServerContext*, const control::DropVolumeRequest* request,
                          control::DropVolumeResponse* response) override {
    grpc::ClientContext context;
    return stub_->DropVolume(&context, *request, response);
  }
  const std::unique_ptr<control::Replica::Stub> stub_;
};

// Serves the unix socket of the replica at `port`, which was started with `insecure`, until the
// returned object ends.
inline absl::StatusOr<std::unique_ptr<LocalServer>> StartOldReplica(uint16_t port) {
  const absl::StatusOr<SocketAddress> address = Resolve(HostPort{"127.0.0.1", port});
  if (!address.ok()) return address.status();
  return LocalServer::Start(LocalSocketPath(LocalSocketDirectory(), *address),
                            [port](uid_t) { return std::make_unique<OldReplica>(port); });
}

}  // namespace salius
