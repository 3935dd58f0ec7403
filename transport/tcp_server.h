// A gRPC server at a TCP port, with the bounds of transport/connection_limits.h for its connections.
// transport/grpc_factory.h makes it.
//
// Threads: any; ConnectionAcceptor's accepts, and gRPC's run the service.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/metrics.h"
#include "common/net.h"
#include "transport/connection_acceptor.h"
#include "transport/tls_sorter.h"

namespace salius {

class TcpServer {
 public:
  // Serves what `builder` has, with these credentials, at `listen`; port 0: any that is free.
  // `silent_ms`: a connection ends when its host acknowledges no data for this long. `without_tls`:
  // answers clients whose connection does not begin with TLS; it outlives the server; null: they get
  // what the others get. ALREADY_EXISTS when the port is in use; other errors: those of bind(2).
  static absl::StatusOr<std::unique_ptr<TcpServer>> Start(
      const SocketAddress& listen, grpc::ServerBuilder& builder,
      std::shared_ptr<grpc::ServerCredentials> credentials, int silent_ms,
      grpc::Service* without_tls = nullptr);
  // As Stop() with no time.
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  uint16_t port() const { return port_; }
  // Accepts no more connections, and ends the calls under way after `time` at most.
  void Stop(std::chrono::milliseconds time);

 private:
  TcpServer() = default;
  // Makes the server of connections without TLS, and the sorter that finds them.
  absl::Status StartSorter(grpc::Service& without_tls);
  // Give a connection to server_, or one without TLS to plain_server_.
  void Serve(UniqueFd connection);
  void ServePlain(UniqueFd connection);

  uint16_t port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> door_;  // of server_
  std::unique_ptr<grpc::Server> plain_server_;     // of clients without TLS; null: none
  std::atomic<int64_t> next_line_ns_{0};           // when the log may name such a client again
  std::unique_ptr<TlsSorter> sorter_;              // uses door_ and plain_server_
  std::unique_ptr<ConnectionAcceptor> acceptor_;   // uses door_ or sorter_
};

}  // namespace salius
