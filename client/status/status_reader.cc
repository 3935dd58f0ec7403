#include "client/status/status_reader.h"

#include <grpcpp/grpcpp.h>

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/file.h"
#include "proto/control.grpc.pb.h"
#include "transport/grpc_factory.h"

namespace salius {

std::vector<std::string> VolumeSocketsIn(const std::string& run_directory) {
  std::vector<std::string> sockets;
  std::error_code error;
  for (std::filesystem::directory_iterator at(run_directory, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".sock") sockets.push_back(at->path());
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

SocketProbe ProbeSocket(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof(address.sun_path)) return {};
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return {};
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    switch (errno) {
      case EACCES:
      case EPERM:
        return {SocketState::kNoPermission, 0};
      case EAGAIN:
        return {SocketState::kBusy, 0};
      case ECONNREFUSED:
        return {SocketState::kDead, 0};
      default:
        return {SocketState::kNone, 0};
    }
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) peer.pid = 0;
  return {SocketState::kListening, peer.pid};
}

absl::StatusOr<uint32_t> SendAcknowledge(const std::string& socket_path,
                                         std::chrono::milliseconds timeout) {
  const auto stub = control::Primary::NewStub(LocalChannel(socket_path));
  grpc::ClientContext context;
  SetCallTimeout(context, timeout);
  control::AcknowledgeResponse response;
  const grpc::Status status = stub->Acknowledge(&context, control::AcknowledgeRequest(), &response);
  if (status.ok()) return response.acknowledged();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(socket_path, ": ", status.error_message()));
}

absl::StatusOr<control::VolumeStatusResponse> ReadVolumeStatus(const std::string& socket_path,
                                                               std::chrono::milliseconds timeout) {
  const auto stub = control::Primary::NewStub(LocalChannel(socket_path));
  grpc::ClientContext context;
  SetCallTimeout(context, timeout);
  control::VolumeStatusResponse response;
  const grpc::Status status =
      stub->VolumeStatus(&context, control::VolumeStatusRequest(), &response);
  if (status.ok()) return response;
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(socket_path, ": ", status.error_message()));
}

absl::Status SendRemount(const std::string& socket_path, const std::string& options,
                         bool check_only, std::chrono::milliseconds timeout) {
  const auto stub = control::Primary::NewStub(LocalChannel(socket_path));
  grpc::ClientContext context;
  SetCallTimeout(context, timeout);
  control::RemountRequest request;
  request.set_options(options);
  request.set_check_only(check_only);
  control::RemountResponse response;
  const grpc::Status status = stub->Remount(&context, request, &response);
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace salius
