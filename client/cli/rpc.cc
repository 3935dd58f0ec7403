#include "client/cli/rpc.h"

#include <grpcpp/grpcpp.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "client/status/status_reader.h"
#include "proto/control.grpc.pb.h"
#include "transport/grpc_factory.h"
#include "transport/handshake_probe.h"

namespace salius::cli {

namespace {

using Stub = control::Replica::Stub;

// Makes one call of the service, `call(stub, context, response)`.
template <typename Response, typename Call>
absl::StatusOr<Response> CallReplica(const std::string& host_port,
                                     std::chrono::milliseconds timeout,
                                     const std::shared_ptr<Credentials>& keys, Call call) {
  const auto stub = control::Replica::NewStub(TcpChannel(host_port, {.keys = keys}));
  grpc::ClientContext context;
  SetCallTimeout(context, timeout);
  Response response;
  const grpc::Status status = call(*stub, &context, &response);
  if (status.ok()) return response;
  return ExplainedStatus(status, "replica " + host_port,
                         {.address = host_port, .host = "", .keys = keys});
}

}  // namespace

absl::StatusOr<control::ReplicaStatusResponse> CallReplicaStatus(
    const std::string& host_port, std::chrono::milliseconds timeout,
    const std::shared_ptr<Credentials>& keys, const VolumeId* volume) {
  control::ReplicaStatusRequest request;
  if (volume != nullptr) request.set_volume(volume->bytes.data(), volume->bytes.size());
  return CallReplica<control::ReplicaStatusResponse>(
      host_port, timeout, keys, [&](Stub& stub, grpc::ClientContext* context, auto* response) {
        return stub.Status(context, request, response);
      });
}

absl::StatusOr<control::ForgetVolumeResponse> CallForgetVolume(const std::string& host_port,
                                                               const VolumeId& volume, bool force,
                                                               const std::shared_ptr<Credentials>& keys) {
  control::ForgetVolumeRequest request;
  request.set_volume(std::string(volume.bytes.begin(), volume.bytes.end()));
  request.set_force(force);
  return CallReplica<control::ForgetVolumeResponse>(
      host_port, kCallTimeout, keys, [&](Stub& stub, grpc::ClientContext* context, auto* response) {
        return stub.ForgetVolume(context, request, response);
      });
}

absl::StatusOr<control::VolumeStatusResponse> CallVolumeStatus(const std::string& socket_path,
                                                               std::chrono::milliseconds timeout) {
  const SocketProbe listening = ProbeSocket(socket_path);
  const std::string at = absl::StrCat("the volume's daemon at ", socket_path);
  const std::string hung =
      absl::StrCat(at, listening.pid > 0 ? absl::StrCat(" (pid ", listening.pid, ")") : "",
                   " does not answer within ", timeout.count(), " ms");
  switch (listening.state) {
    case SocketState::kNone:
      return absl::NotFoundError(absl::StrCat("no volume answers at ", socket_path));
    case SocketState::kDead:
      return absl::UnavailableError(absl::StrCat(at, " has died; mount the volume again"));
    case SocketState::kNoPermission:
      return absl::PermissionDeniedError(absl::StrCat(at, " may be asked by root only"));
    case SocketState::kBusy:
      return absl::DeadlineExceededError(hung);
    case SocketState::kListening:
      break;
  }
  absl::StatusOr<control::VolumeStatusResponse> status = ReadVolumeStatus(socket_path, timeout);
  if (status.ok()) return status;
  if (absl::IsDeadlineExceeded(status.status())) return absl::DeadlineExceededError(hung);
  return absl::Status(status.status().code(), absl::StrCat(at, ": ", status.status().message()));
}

}  // namespace salius::cli
