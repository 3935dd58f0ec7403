#include "client/cli/rpc.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/status/status_reader.h"
#include "common/strings.h"
#include "proto/control.grpc.pb.h"

namespace salius::cli {
namespace {

constexpr std::chrono::seconds kCallTimeout{5};

}  // namespace

absl::StatusOr<control::ReplicaStatusResponse> CallReplicaStatus(const std::string& host_port) {
  grpc::ChannelArguments arguments;
  // A proxy of the environment has no business between an administrator and a replica.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // How long one address of a name is waited for before its next is tried.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  const auto stub = control::Replica::NewStub(
      grpc::CreateCustomChannel(host_port, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  control::ReplicaStatusResponse response;
  const grpc::Status status = stub->Status(&context, control::ReplicaStatusRequest(), &response);
  if (status.ok()) return response;
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat("replica ", host_port, ": ",
                                   Printable(status.error_message(), NewLines::kReplace)));
}

absl::StatusOr<control::VolumeStatusResponse> CallVolumeStatus(const std::string& socket_path) {
  std::error_code error;
  if (!std::filesystem::exists(socket_path, error)) {
    return absl::NotFoundError(absl::StrCat("no volume answers at ", socket_path));
  }
  absl::StatusOr<control::VolumeStatusResponse> status =
      ReadVolumeStatus(socket_path, kCallTimeout);
  if (status.ok()) return status;
  return absl::Status(status.status().code(),
                      absl::StrCat("the mount at ", socket_path, ": ", status.status().message()));
}

}  // namespace salius::cli
