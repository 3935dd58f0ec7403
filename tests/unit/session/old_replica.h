// A replica of an older version, at its unix socket.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/net.h"
#include "proto/control.grpc.pb.h"
#include "transport/local_server.h"
#include "transport/local_socket.h"

namespace salius {

// Changes an answer to what the older version says.
using OlderAnswer =
    std::function<void(const control::OpenSessionRequest&, control::OpenSessionResponse&)>;

// Answers the control calls of such a version, by those of a replica at 127.0.0.1.
class OldReplica final : public control::Replica::Service {
 public:
  OldReplica(uint16_t port, OlderAnswer older)
      // Not TcpChannel, which would find the unix socket.
      : stub_(control::Replica::NewStub(grpc::CreateChannel(
            absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()))),
        older_(std::move(older)) {}

 private:
  grpc::Status OpenSession(grpc::ServerContext*, const control::OpenSessionRequest* request,
                           control::OpenSessionResponse* response) override {
    grpc::ClientContext context;
    const grpc::Status status = stub_->OpenSession(&context, *request, response);
    if (older_) older_(*request, *response);
    return status;
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
  const OlderAnswer older_;
};

// Serves the unix socket of the replica at `port`, which was started with `insecure`, until the
// returned object ends. One that was started without keys seals nothing. Calls of `older` come from
// any thread.
inline absl::StatusOr<std::unique_ptr<LocalServer>> StartOldReplica(uint16_t port,
                                                                    OlderAnswer older = {}) {
  const absl::StatusOr<SocketAddress> address = Resolve(HostPort{"127.0.0.1", port});
  if (!address.ok()) return address.status();
  return LocalServer::Start(LocalSocketPath(LocalSocketDirectory(), *address),
                            [port, older = std::move(older)](uid_t) {
                              return std::make_unique<OldReplica>(port, older);
                            });
}

}  // namespace salius
