#include "client/session/session_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <list>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "proto/control.grpc.pb.h"
#include "transport/grpc_factory.h"

namespace salius {
namespace {

std::string Bytes(const VolumeId& volume) {
  return std::string(reinterpret_cast<const char*>(volume.bytes.data()), volume.bytes.size());
}

std::shared_ptr<control::Replica::Stub> Connect(const std::string& address) {
  return control::Replica::NewStub(TcpChannel(address, {.own_connection = true}));
}

}  // namespace

struct SessionClient::Impl {
  struct Call {
    grpc::ClientContext context;
    Deadline deadline = Deadline::Never();
    bool opens = false, overdue = false;
  };

  // Makes one call with `call(stub, context)`. `opens`: StopOpening ends it. The last flag asks for
  // a new connection. A channel that failed is not used again: its pause before the next attempt is
  // one of gRPC's timers.
  template <typename F>
  absl::Status Run(bool opens, int64_t deadline_ms, F call, bool reconnect = false) {
    std::list<Call>::iterator mine;
    std::shared_ptr<control::Replica::Stub> used;
    {
      absl::MutexLock lock(&mutex);
      if (opens && opening_stopped) return absl::CancelledError("the session ends");
      if (address.empty()) {
        return absl::UnavailableError(absl::StrCat("replica ", name, " has no address"));
      }
      if (reconnect) {
        used = Connect(address);
      } else {
        if (stub == nullptr) stub = Connect(address);
        used = stub;
      }
      mine = running.emplace(running.end());
      mine->opens = opens;
      mine->deadline = Deadline::AfterMillis(SystemClock(), deadline_ms);
      SetCallTimeout(mine->context, std::chrono::milliseconds(deadline_ms));
    }
    const grpc::Status status = call(*used, mine->context);
    absl::MutexLock lock(&mutex);
    const bool overdue = mine->overdue;
    running.erase(mine);
    if (status.ok()) return absl::OkStatus();
    if (stub == used) stub.reset();
    if (overdue || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::DeadlineExceededError(
          absl::StrCat("replica ", name, ": no answer within ", deadline_ms, " ms"));
    }
    return CallStatus(status, "replica " + name);
  }

  std::string name;
  absl::Mutex mutex;
  std::string address ABSL_GUARDED_BY(mutex);
  std::shared_ptr<control::Replica::Stub> stub ABSL_GUARDED_BY(mutex);
  std::list<Call> running ABSL_GUARDED_BY(mutex);
  bool opening_stopped ABSL_GUARDED_BY(mutex) = false;
};

SessionClient::SessionClient(const std::string& name) : impl_(std::make_unique<Impl>()) {
  impl_->name = name;
}

SessionClient::~SessionClient() = default;

void SessionClient::SetAddress(const std::string& address) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->address = address;
  impl_->stub.reset();
}

absl::StatusOr<OpenedSession> SessionClient::Open(const VolumeConfig& config, Epoch epoch,
                                                  uint64_t session, Seq base, int64_t deadline_ms) {
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
  const absl::Status status = impl_->Run(
      true, deadline_ms, [&](control::Replica::Stub& stub, grpc::ClientContext& context) {
        return stub.OpenSession(&context, request, &response);
      });
  if (!status.ok()) return status;
  return OpenedFrom(impl_->name, response);
}

absl::StatusOr<HeldSession> SessionClient::Ask(const VolumeId& volume, int64_t deadline_ms) {
  control::InventoryRequest request;
  request.set_volume(Bytes(volume));
  control::InventoryResponse response;
  const absl::Status status = impl_->Run(
      true, deadline_ms,
      [&](control::Replica::Stub& stub, grpc::ClientContext& context) {
        return stub.Inventory(&context, request, &response);
      },
      /*reconnect=*/true);
  if (!status.ok()) return status;
  return HeldFrom(impl_->name, response);
}

absl::Status SessionClient::Drop(const VolumeId& volume, Epoch epoch, uint64_t session,
                                 int64_t deadline_ms) {
  control::DropVolumeRequest request;
  request.set_volume(Bytes(volume));
  request.set_epoch(epoch);
  request.set_session(session);
  control::DropVolumeResponse response;
  return impl_->Run(false, deadline_ms,
                    [&](control::Replica::Stub& stub, grpc::ClientContext& context) {
                      return stub.DropVolume(&context, request, &response);
                    });
}

void SessionClient::EndOverdueCalls() {
  absl::MutexLock lock(&impl_->mutex);
  for (Impl::Call& call : impl_->running) {
    if (call.overdue || !call.deadline.Expired(SystemClock())) continue;
    call.overdue = true;
    call.context.TryCancel();
  }
}

void SessionClient::StopOpening() {
  absl::MutexLock lock(&impl_->mutex);
  impl_->opening_stopped = true;
  for (Impl::Call& call : impl_->running) {
    if (call.opens) call.context.TryCancel();
  }
}

}  // namespace salius
