// A gRPC server at a TCP port, with the bounds of transport/connection_limits.h for its connections.
// transport/grpc_factory.h makes it.
//
// Threads: any; ConnectionAcceptor's accepts, and gRPC's run the service.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/net.h"
#include "transport/connection_acceptor.h"

namespace salius {

class TcpServer {
 public:
  // Serves what `builder` has, with these credentials, at `listen`; port 0: any that is free.
  // `silent_ms`: a connection ends when its host acknowledges no data for this long. ALREADY_EXISTS when
  // the port is in use; other errors: those of bind(2).
  static absl::StatusOr<std::unique_ptr<TcpServer>> Start(
      const SocketAddress& listen, grpc::ServerBuilder& builder,
      std::shared_ptr<grpc::ServerCredentials> credentials, int silent_ms);
  // As Stop() with no time.
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  uint16_t port() const { return port_; }
  // Accepts no more connections, and ends the calls under way after `time` at most.
  void Stop(std::chrono::milliseconds time);

 private:
  TcpServer() = default;

  uint16_t port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> door_;  // of server_
  std::unique_ptr<ConnectionAcceptor> acceptor_;                          // uses door_
};

}  // namespace salius
