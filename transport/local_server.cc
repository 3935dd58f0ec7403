#include "transport/local_server.h"

#include <errno.h>
#include <fcntl.h>
#include <grpcpp/server_posix.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "transport/local_socket.h"

namespace salius {
namespace {

constexpr int kBacklog = 128;
constexpr mode_t kForGroup = 0660;

absl::StatusOr<UniqueFd> Listen(const std::string& path) {
  SALIUS_ASSIGN_OR_RETURN(const sockaddr_un address, UnixSocketAddress(path));
  const auto* const name = reinterpret_cast<const sockaddr*>(&address);
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return ErrnoStatus(errno, "socket");
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(probe.get(), name, sizeof(address)) == 0 || errno == EAGAIN) {
    return absl::AlreadyExistsError(absl::StrCat("another process serves at ", path));
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, path);
  // The socket has this mode from its beginning (less the umask), and another one only afterwards.
  if (::fchmod(listener.get(), S_IRUSR | S_IWUSR) != 0 ||
      ::bind(listener.get(), name, sizeof(address)) != 0 ||
      ::chmod(path.c_str(), kForGroup) != 0 || ::listen(listener.get(), kBacklog) != 0) {
    return ErrnoStatus(errno, path);
  }
  return listener;
}

// Returns the user at the other end, as the kernel knows it.
std::optional<uid_t> UserOf(int connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Start(const std::string& path,
                                                                MakeService make) {
  SALIUS_RETURN_IF_ERROR(MakeDirs(path.substr(0, path.rfind('/'))));
  SALIUS_ASSIGN_OR_RETURN(UniqueFd listener, Listen(path));
  std::unique_ptr<LocalServer> made(new LocalServer(path, std::move(make)));
  SALIUS_ASSIGN_OR_RETURN(
      made->acceptor_,
      ConnectionAcceptor::Start(
          path, std::move(listener),
          [](int connection, const SocketAddress&) {
            const std::optional<uid_t> user = UserOf(connection);
            return user ? absl::StrCat("user ", *user) : "an unknown user";
          },
          [server = made.get()](UniqueFd connection) { server->Serve(std::move(connection)); }));
  return made;
}

LocalServer::LocalServer(std::string path, MakeService make)
    : path_(std::move(path)), make_(std::move(make)) {}

LocalServer::~LocalServer() { Stop(std::chrono::milliseconds(0)); }

void LocalServer::Stop(std::chrono::milliseconds time) {
  if (acceptor_ == nullptr) return;
  // While it listens, no other process takes the path.
  ::unlink(path_.c_str());
  acceptor_.reset();
  const auto end = std::chrono::system_clock::now() + time;
  for (auto& [user, served] : users_) {
    served.server->Shutdown(end);
    served.server->Wait();
  }
  users_.clear();
}

void LocalServer::Serve(UniqueFd connection) {
  const std::optional<uid_t> user = UserOf(connection.get());
  grpc::Server* const server = user ? ServerOf(*user) : nullptr;
  if (server != nullptr) grpc::AddInsecureChannelFromFd(server, connection.Release());
}

grpc::Server* LocalServer::ServerOf(uid_t user) {
  if (const auto found = users_.find(user); found != users_.end()) {
    return found->second.server.get();
  }
  if (users_.size() >= kMostUsers) {
    SLOG_WARN("{}: closed a connection of user {}: {} other users have been served", path_, user,
              kMostUsers);
    return nullptr;
  }
  User made;
  made.service = make_(user);
  grpc::ServerBuilder builder;
  // One user makes few calls at a time.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.RegisterService(made.service.get());
  made.server = builder.BuildAndStart();
  if (made.server == nullptr) {
    SLOG_ERROR("{}: no server for user {}", path_, user);
    return nullptr;
  }
  return users_.emplace(user, std::move(made)).first->second.server.get();
}

}  // namespace salius
