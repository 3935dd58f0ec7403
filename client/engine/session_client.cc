#include "client/engine/session_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "proto/control.grpc.pb.h"

namespace salius {
namespace {

absl::Status FromGrpc(const std::string& address, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat("replica ", address, ": ", status.error_message()));
}

void SetDeadline(grpc::ClientContext& context, int64_t deadline_ms) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(deadline_ms));
}

std::string Bytes(const VolumeId& volume) {
  return std::string(reinterpret_cast<const char*>(volume.bytes.data()), volume.bytes.size());
}

}  // namespace

struct SessionClient::Impl {
  std::string address;
  std::unique_ptr<control::Replica::Stub> stub;
};

SessionClient::SessionClient(const std::string& address) : impl_(std::make_unique<Impl>()) {
  impl_->address = address;
  grpc::ChannelArguments arguments;
  // A replica that comes back should be found soon: never wait long between attempts to connect.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // One subchannel per volume and replica, not shared behind our back.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  impl_->stub = control::Replica::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

SessionClient::~SessionClient() = default;

absl::StatusOr<SessionClient::Opened> SessionClient::Open(const VolumeConfig& config, Epoch epoch,
                                                          uint64_t session, Seq base,
                                                          int64_t deadline_ms) {
  control::OpenSessionRequest request;
  request.set_volume(Bytes(config.volume));
  request.set_epoch(epoch);
  request.set_session(session);
  request.set_base(base);
  request.set_acks(config.acks);
  request.set_delta_us(config.delta_us);
  request.set_tau_ms(config.tau_ms);
  request.set_k(config.k);
  request.set_memory_bytes(config.log_max_bytes);
  request.set_multicast(config.multicast);
  control::OpenSessionResponse response;
  grpc::ClientContext context;
  SetDeadline(context, deadline_ms);
  const grpc::Status status = impl_->stub->OpenSession(&context, request, &response);
  if (!status.ok()) return FromGrpc(impl_->address, status);
  if (response.incarnation() == 0 || response.udp_port() == 0 || response.udp_port() > 65535) {
    return absl::InternalError(absl::StrCat("replica ", impl_->address,
                                            " gave an answer without incarnation or UDP port"));
  }
  return Opened{response.incarnation(), static_cast<uint16_t>(response.udp_port()),
                response.free_bytes()};
}

absl::Status SessionClient::Drop(const VolumeId& volume, Epoch epoch, int64_t deadline_ms) {
  control::DropVolumeRequest request;
  request.set_volume(Bytes(volume));
  request.set_epoch(epoch);
  control::DropVolumeResponse response;
  grpc::ClientContext context;
  SetDeadline(context, deadline_ms);
  return FromGrpc(impl_->address, impl_->stub->DropVolume(&context, request, &response));
}

}  // namespace salius
