#include "transport/tcp_server.h"

#include <errno.h>
#include <grpcpp/server_posix.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"
#include "common/file.h"
#include "common/log.h"

namespace salius {
namespace {

// A client without TLS needs its connection for one answer.
constexpr int kPlainMs = 10'000;
constexpr int64_t kLogNs = 1'000'000'000;

absl::Status SetOption(const UniqueFd& fd, int level, int option, int value, const char* what) {
  if (::setsockopt(fd.get(), level, option, &value, sizeof(value)) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, what);
}

// Accepted connections inherit the options.
absl::StatusOr<UniqueFd> Listen(const SocketAddress& listen, int silent_ms) {
  const int family = listen.storage.ss_family;
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  // Connections of an earlier process that still close do not hold the port.
  SALIUS_RETURN_IF_ERROR(SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR"));
  SALIUS_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  SALIUS_RETURN_IF_ERROR(
      SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, silent_ms, "TCP_USER_TIMEOUT"));
  if (family == AF_INET6) {
    SALIUS_RETURN_IF_ERROR(SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0, "IPV6_V6ONLY"));
  }
  if (::bind(fd.get(), listen.get(), listen.length) == 0 && ::listen(fd.get(), SOMAXCONN) == 0) {
    return fd;
  }
  if (errno == EADDRINUSE) {
    return absl::AlreadyExistsError(absl::StrFormat("TCP port %d is in use (bind %s)",
                                                    listen.port(), FormatSockaddr(listen)));
  }
  return ErrnoStatus(errno, absl::StrCat("bind TCP ", FormatSockaddr(listen)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpServer>> TcpServer::Start(
    const SocketAddress& listen, grpc::ServerBuilder& builder,
    std::shared_ptr<grpc::ServerCredentials> credentials, int silent_ms,
    grpc::Service* without_tls) {
  SALIUS_ASSIGN_OR_RETURN(UniqueFd listener, Listen(listen, silent_ms));
  SocketAddress bound;
  bound.length = sizeof(bound.storage);
  if (::getsockname(listener.get(), bound.get(), &bound.length) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  std::unique_ptr<TcpServer> made(new TcpServer());
  made->port_ = bound.port();
  made->door_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      std::move(credentials));
  made->server_ = builder.BuildAndStart();
  if (made->server_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("gRPC makes no server for ", FormatSockaddr(bound)));
  }
  if (without_tls != nullptr) SALIUS_RETURN_IF_ERROR(made->StartSorter(*without_tls));
  SALIUS_ASSIGN_OR_RETURN(
      made->acceptor_,
      ConnectionAcceptor::Start(
          absl::StrCat("TCP port ", made->port_), std::move(listener),
          [](int, const SocketAddress& peer) { return FormatHost(peer); },
          [server = made.get()](UniqueFd connection) {
            if (server->sorter_ != nullptr) {
              server->sorter_->Add(std::move(connection));
            } else {
              server->Serve(std::move(connection));
            }
          }));
  return made;
}

absl::Status TcpServer::StartSorter(grpc::Service& without_tls) {
  grpc::ServerBuilder builder;
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kPlainMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, kPlainMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, 0);
  builder.RegisterService(&without_tls);
  plain_server_ = builder.BuildAndStart();
  if (plain_server_ == nullptr) {
    return absl::UnavailableError("gRPC makes no server for clients without keys");
  }
  SALIUS_ASSIGN_OR_RETURN(sorter_, TlsSorter::Start([this](UniqueFd connection, bool tls) {
                            if (tls) {
                              Serve(std::move(connection));
                            } else {
                              ServePlain(std::move(connection));
                            }
                          }));
  return absl::OkStatus();
}

void TcpServer::Serve(UniqueFd connection) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.fd = connection.Release();
  door_->HandleNewConnection(&parameters);
}

void TcpServer::ServePlain(UniqueFd connection) {
  static Counter& clients =
      GetCounter("salius_control_clients_without_keys_total",
                 "Control connections of clients without keys, whose calls were refused");
  clients.Increment();
  SocketAddress peer;
  peer.length = sizeof(peer.storage);
  const int64_t now = SystemClock().MonotonicNanos();
  int64_t next = next_line_ns_.load();
  if (now >= next && next_line_ns_.compare_exchange_strong(next, now + kLogNs) &&
      ::getpeername(connection.get(), peer.get(), &peer.length) == 0) {
    SLOG_WARN("TCP port {}: a client without keys, at {}, is refused: upgrade it, and give it keys=",
              port_, FormatSockaddr(peer));
  }
  grpc::AddInsecureChannelFromFd(plain_server_.get(), connection.Release());
}

TcpServer::~TcpServer() { Stop(std::chrono::milliseconds(0)); }

void TcpServer::Stop(std::chrono::milliseconds time) {
  // First, because gRPC leaks a connection that it gets when it shuts down.
  acceptor_.reset();
  sorter_.reset();
  if (plain_server_ != nullptr) {
    plain_server_->Shutdown(std::chrono::system_clock::now());
    plain_server_->Wait();
    plain_server_.reset();
  }
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + time);
  server_->Wait();
  door_.reset();
  server_.reset();
}

}  // namespace salius
