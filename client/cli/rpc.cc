#include "client/cli/rpc.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/strings.h"
#include "proto/control.grpc.pb.h"

namespace salius::cli {
namespace {

constexpr std::chrono::seconds kCallTimeout{5};

// The gRPC status with what was called in front; the codes are the same numbers.
absl::Status ToStatus(const grpc::Status& status, const std::string& what) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(what, ": ", status.error_message()));
}

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& target) {
  grpc::ChannelArguments arguments;
  // A proxy of the environment has no business between an administrator and a replica.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
}

}  // namespace

std::string SocketPathOf(const VolumeId& volume) {
  return absl::StrCat(kRunDirectory, "/", volume.ToString(), ".sock");
}

absl::StatusOr<control::ReplicaStatusResponse> CallReplicaStatus(const std::string& host_port) {
  const auto stub = control::Replica::NewStub(ChannelTo(host_port));
  grpc::ClientContext context;
  SetDeadline(context);
  control::ReplicaStatusResponse response;
  const grpc::Status status = stub->Status(&context, control::ReplicaStatusRequest(), &response);
  if (!status.ok()) return ToStatus(status, absl::StrCat("replica ", host_port));
  return response;
}

absl::StatusOr<control::VolumeStatusResponse> CallVolumeStatus(const std::string& socket_path) {
  std::error_code error;
  if (!std::filesystem::exists(socket_path, error)) {
    return absl::NotFoundError(absl::StrCat("no volume answers at ", socket_path));
  }
  const auto stub = control::Primary::NewStub(ChannelTo(absl::StrCat("unix:", socket_path)));
  grpc::ClientContext context;
  SetDeadline(context);
  control::VolumeStatusResponse response;
  const grpc::Status status =
      stub->VolumeStatus(&context, control::VolumeStatusRequest(), &response);
  if (!status.ok()) return ToStatus(status, absl::StrCat("the mount at ", socket_path));
  return response;
}

std::vector<std::string> VolumeSockets(const std::string& run_directory) {
  std::vector<std::string> sockets;
  std::error_code error;
  for (std::filesystem::directory_iterator at(run_directory, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".sock") sockets.push_back(at->path().string());
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

}  // namespace salius::cli
