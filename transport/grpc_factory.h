// Makes every channel and server of gRPC. This is the one place that knows credentials, keepalive,
// reconnection and message sizes.
//
// With Credentials both ends authenticate each other (mutual TLS). Without them a peer on another
// host needs the user's word that the network is trusted: AllowedWithoutKeys
// (transport/without_keys.h).
//
// Threads: any, but for ServeLocal.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net.h"
#include "transport/credentials.h"
#include "transport/tcp_server.h"

namespace salius {

struct GrpcChannelOptions {
  // The longest attempt to connect to one address of a name, in milliseconds. Then the next address
  // is tried.
  int connect_ms = 1000;
  // The channel shares no connection with other channels of this process, nor the pause after a
  // failed attempt of theirs.
  bool own_connection = false;
  // A host that died is detected within 15 s, also in the middle of a stream.
  bool keepalive = false;
  // An answer may have any size; else at most 4 MiB.
  bool any_size = false;
  // The keys of this process; null: none, the channel is not authenticated.
  std::shared_ptr<Credentials> keys = nullptr;
  // Without keys: a replica at a loopback address is reached by its unix socket only. Any user of this
  // host could listen at the port.
  bool local_only = false;
  // With keys: the host by which the user knows the peer; empty: that of the channel's address.
  std::string host = "";
};

// Returns a channel to "host:port". It connects with the first call, never through a proxy of the
// environment, and again at most a second after a failure. A replica at a loopback address is reached by
// its unix socket, if it has one (transport/local_socket.h).
std::shared_ptr<grpc::Channel> TcpChannel(const std::string& host_port,
                                          const GrpcChannelOptions& options = {});
// Returns a channel to the Unix socket `path`.
std::shared_ptr<grpc::Channel> LocalChannel(const std::string& path);

// Bounds a call. gRPC's timers use the wall clock: a clock that is set back makes the call longer by
// as much. A caller for which that is too long ends the call itself (grpc::ClientContext::TryCancel).
void SetCallTimeout(grpc::ClientContext& context, std::chrono::milliseconds timeout);

// Returns OK, or the call's error as "`peer`: message". The message came from the peer: control
// characters are replaced.
absl::Status CallStatus(const grpc::Status& status, std::string_view peer);

// Serves at `listen`; port 0: any that is free. No other process can have the port. Connections to
// hosts that died are closed within 80 s, those that finish no handshake after 10 s, and those
// without a call after 5 minutes. With `keys` a caller without a certificate of a trusted
// authority is refused, and a connection ends after kMaxConnectionAge, so that expired certificates
// do not outlive it. Connections beyond the bounds of transport/connection_limits.h are closed at once.
// `without_tls`: with `keys`, answers clients that use no TLS; it outlives the server; null: their
// connections end. Errors: those of TcpServer::Start.
inline constexpr std::chrono::minutes kMaxConnectionAge{10};
absl::StatusOr<std::unique_ptr<TcpServer>> ServeTcp(const SocketAddress& listen,
                                                    grpc::Service& service,
                                                    std::shared_ptr<Credentials> keys = nullptr,
                                                    grpc::Service* without_tls = nullptr);

// Serves at the Unix socket `path`, for this user only. No other thread may create files meanwhile:
// it changes the process's umask. UNAVAILABLE when it cannot listen there.
absl::StatusOr<std::unique_ptr<grpc::Server>> ServeLocal(const std::string& path,
                                                         grpc::Service& service);

}  // namespace salius
