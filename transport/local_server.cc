#include "transport/local_server.h"

#include <errno.h>
#include <fcntl.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
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
// A pause after a failed accept(2), such as EMFILE.
constexpr int kPauseMs = 100;

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

}  // namespace

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Start(const std::string& path,
                                                                MakeService make) {
  SALIUS_RETURN_IF_ERROR(MakeDirs(path.substr(0, path.rfind('/'))));
  SALIUS_ASSIGN_OR_RETURN(UniqueFd listener, Listen(path));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  return std::unique_ptr<LocalServer>(
      new LocalServer(path, std::move(listener), std::move(wake), std::move(make)));
}

LocalServer::LocalServer(std::string path, UniqueFd listener, UniqueFd wake, MakeService make)
    : path_(std::move(path)),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      make_(std::move(make)),
      thread_([this] { Accept(); }) {}

LocalServer::~LocalServer() { Stop(std::chrono::milliseconds(0)); }

void LocalServer::Stop(std::chrono::milliseconds time) {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof(one)));
  thread_.join();
  ::unlink(path_.c_str());
  listener_.Reset();
  const auto end = std::chrono::system_clock::now() + time;
  for (auto& [user, served] : users_) {
    served.server->Shutdown(end);
    served.server->Wait();
  }
  users_.clear();
}

void LocalServer::Accept() {
  for (;;) {
    pollfd ready[] = {{listener_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0 && errno != EINTR) return;
    if (ready[1].revents != 0) return;
    if (ready[0].revents == 0) continue;
    UniqueFd connection(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.valid()) {
      Serve(std::move(connection));
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      SLOG_WARN("{}: a connection was not accepted (errno {})", path_, errno);
      static_cast<void>(::poll(&ready[1], 1, kPauseMs));
    }
  }
}

void LocalServer::Serve(UniqueFd connection) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  grpc::Server* const server = ServerOf(peer.uid);
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
