// Serves gRPC at a unix socket, and knows the user of each caller.
//
// gRPC does not tell a service the credentials of a caller at a unix socket. So this accepts the
// connections, asks the kernel for the user (SO_PEERCRED), and gives each to a gRPC server of this one
// user: the identity relies on no descriptor or name that may be used again. Each user has the share of
// connections that transport/connection_limits.h gives to a host.
//
// Threads: ConnectionAcceptor's accepts; gRPC's run the services.
#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/file.h"
#include "transport/connection_acceptor.h"

namespace salius {

class LocalServer {
 public:
  // Makes the service for the callers with this user id. Called by the accepting thread, once for
  // each user.
  using MakeService = std::function<std::unique_ptr<grpc::Service>(uid_t user)>;

  // Users with a server of their own; connections of others are closed.
  static constexpr size_t kMostUsers = 64;

  // Listens at `path`. Makes its directory (0755) when it is missing, and replaces a socket that a
  // dead process left. The socket has mode 0660: its user and group, and root, can connect.
  // ALREADY_EXISTS: a process listens there. Other errors: those of mkdir(2), bind(2), eventfd(2).
  static absl::StatusOr<std::unique_ptr<LocalServer>> Start(const std::string& path,
                                                            MakeService make);
  // As Stop() with no time.
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  // Removes the socket, and ends the calls under way after `time` at most.
  void Stop(std::chrono::milliseconds time);

  const std::string& path() const { return path_; }

 private:
  struct User {
    std::unique_ptr<grpc::Service> service;  // outlives the server
    std::unique_ptr<grpc::Server> server;
  };
  LocalServer(std::string path, MakeService make);
  void Serve(UniqueFd connection);
  grpc::Server* ServerOf(uid_t user);

  const std::string path_;
  MakeService make_;
  std::map<uid_t, User> users_;  // While the accepting thread runs, only it uses them.
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

}  // namespace salius
