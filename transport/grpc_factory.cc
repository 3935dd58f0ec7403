#include "transport/grpc_factory.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/strings.h"
#include "transport/local_socket.h"

namespace salius {
namespace {

constexpr int kFirstPauseMs = 100;
constexpr int kLongestPauseMs = 1000;
// Channels with GrpcChannelOptions::keepalive.
constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
// Servers: a host that lost its power closes no connection.
constexpr int kServerKeepaliveMs = 60'000;
constexpr int kServerKeepaliveTimeoutMs = 20'000;
// How long a peer may take for the handshake, and how long its connection stays without a call.
// Connections that do nothing must not use up the descriptors. A client connects again by itself.
constexpr int kHandshakeMs = 10'000;
constexpr int kIdleMs = 300'000;
// The argument has no name in gRPC's public headers.
constexpr char kHandshakeTimeout[] = "grpc.server_handshake_timeout_ms";

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials() {
  return grpc::InsecureChannelCredentials();
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentials() {
  return grpc::InsecureServerCredentials();
}

// Returns the host of "host:port"; all of it when it is none.
std::string HostOf(const std::string& host_port) {
  const absl::StatusOr<HostPort> parsed = ParseHostPort(host_port, 0);
  return parsed.ok() ? parsed->host : host_port;
}

std::string UnixAddress(const std::string& path) { return absl::StrCat("unix:", path); }

}  // namespace

std::shared_ptr<grpc::Channel> TcpChannel(const std::string& host_port,
                                          const GrpcChannelOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstPauseMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestPauseMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, options.connect_ms);
  if (options.own_connection) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (options.keepalive) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  }
  if (options.any_size) arguments.SetMaxReceiveMessageSize(-1);
  if (options.keys != nullptr) {
    return grpc::CreateCustomChannel(
        host_port,
        options.keys->ForChannel(options.host.empty() ? HostOf(host_port) : options.host),
        arguments);
  }
  const std::string local = FindLocalSocket(
      host_port, options.local_only ? NoSocket::kFail : NoSocket::kUseTcp);
  return grpc::CreateCustomChannel(local.empty() ? host_port : UnixAddress(local),
                                   ClientCredentials(), arguments);
}

std::shared_ptr<grpc::Channel> LocalChannel(const std::string& path) {
  return grpc::CreateChannel(UnixAddress(path), ClientCredentials());
}

void SetCallTimeout(grpc::ClientContext& context, std::chrono::milliseconds timeout) {
  context.set_deadline(std::chrono::system_clock::now() + timeout);
}

absl::Status CallStatus(const grpc::Status& status, std::string_view peer) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(std::string(peer), ": ",
                                   Printable(status.error_message(), NewLines::kReplace)));
}

absl::StatusOr<std::unique_ptr<TcpServer>> ServeTcp(const SocketAddress& listen,
                                                    grpc::Service& service,
                                                    std::shared_ptr<Credentials> keys,
                                                    grpc::Service* without_tls) {
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kServerKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kServerKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  builder.AddChannelArgument(kHandshakeTimeout, kHandshakeMs);
  if (keys != nullptr) {
    builder.AddChannelArgument(
        GRPC_ARG_MAX_CONNECTION_AGE_MS,
        static_cast<int>(std::chrono::milliseconds(kMaxConnectionAge).count()));
  }
  builder.RegisterService(&service);
  return TcpServer::Start(
      listen, builder,
      keys == nullptr ? ServerCredentials() : Credentials::ForServer(keys),
      kServerKeepaliveTimeoutMs, keys == nullptr ? nullptr : without_tls);
}

absl::StatusOr<std::unique_ptr<grpc::Server>> ServeLocal(const std::string& path,
                                                         grpc::Service& service) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(UnixAddress(path), ServerCredentials());
  builder.RegisterService(&service);
  // The socket must not be open to others for even a moment.
  const mode_t mask = ::umask(0177);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ::umask(mask);
  if (server == nullptr) return absl::UnavailableError(absl::StrCat("cannot listen at ", path));
  return server;
}

}  // namespace salius
