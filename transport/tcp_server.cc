#include "transport/tcp_server.h"

#include <errno.h>
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

namespace salius {
namespace {

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
    std::shared_ptr<grpc::ServerCredentials> credentials, int silent_ms) {
  SALIUS_ASSIGN_OR_RETURN(UniqueFd listener, Listen(listen, silent_ms));
  SocketAddress bound;
  bound.length = sizeof(bound.storage);
  if (::getsockname(listener.get(), bound.get(), &bound.length) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  std::unique_ptr<TcpServer> made(new TcpServer());
  made->port_ = bound.port();
  using Door = grpc::experimental::ExternalConnectionAcceptor;
  made->door_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      std::move(credentials));
  made->server_ = builder.BuildAndStart();
  if (made->server_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("gRPC makes no server for ", FormatSockaddr(bound)));
  }
  SALIUS_ASSIGN_OR_RETURN(
      made->acceptor_,
      ConnectionAcceptor::Start(
          absl::StrCat("TCP port ", made->port_), std::move(listener),
          [](int, const SocketAddress& peer) { return FormatHost(peer); },
          [door = made->door_.get()](UniqueFd connection) {
            Door::NewConnectionParameters parameters;
            parameters.fd = connection.Release();
            door->HandleNewConnection(&parameters);
          }));
  return made;
}

TcpServer::~TcpServer() { Stop(std::chrono::milliseconds(0)); }

void TcpServer::Stop(std::chrono::milliseconds time) {
  // First, because gRPC leaks a connection that it gets when it shuts down.
  acceptor_.reset();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + time);
  server_->Wait();
  door_.reset();
  server_.reset();
}

}  // namespace salius
