#include "client/session/session_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <list>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/version.h"
#include "proto/control.grpc.pb.h"
#include "transport/credentials.h"
#include "transport/grpc_factory.h"
#include "transport/handshake_probe.h"

namespace salius {
namespace {

std::string Bytes(const VolumeId& volume) {
  return std::string(reinterpret_cast<const char*>(volume.bytes.data()), volume.bytes.size());
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
      const uint64_t now = keys == nullptr ? 0 : keys->Generation();
      if (now != generation) stub.reset();  // It would show the old certificate.
      generation = now;
      if (reconnect) {
        used = Connect();
      } else {
        if (stub == nullptr) stub = Connect();
        used = stub;
      }
      mine = running.emplace(running.end());
      mine->opens = opens;
      mine->deadline = Deadline::AfterMillis(SystemClock(), deadline_ms);
      SetCallTimeout(mine->context, std::chrono::milliseconds(deadline_ms));
    }
    const grpc::Status status = call(*used, mine->context);
    absl::Status explained;
    if (!status.ok()) explained = Explain(status);
    absl::MutexLock lock(&mutex);
    const bool overdue = mine->overdue;
    running.erase(mine);
    if (status.ok()) return absl::OkStatus();
    if (stub == used) stub.reset();
    if (overdue || status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::DeadlineExceededError(
          absl::StrCat("replica ", name, ": no answer within ", deadline_ms, " ms"));
    }
    return explained;
  }

  std::shared_ptr<control::Replica::Stub> Connect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return control::Replica::NewStub(
        TcpChannel(address, {.own_connection = true, .keys = keys, .local_only = !insecure, .host = host}));
  }

  // Returns the error of a call that failed.
  absl::Status Explain(const grpc::Status& status) {
    CallTarget target{.address = "", .host = host, .keys = keys};
    {
      absl::MutexLock lock(&mutex);
      target.address = address;
    }
    return ExplainedStatus(status, "replica " + name, target);
  }

  std::string name;
  std::shared_ptr<Credentials> keys;
  std::string host;  // By which the user knows the replica.
  bool insecure = true;
  absl::Mutex mutex;
  std::string address ABSL_GUARDED_BY(mutex);
  std::shared_ptr<control::Replica::Stub> stub ABSL_GUARDED_BY(mutex);
  uint64_t generation ABSL_GUARDED_BY(mutex) = 0;  // That of the keys of `stub`.
  std::list<Call> running ABSL_GUARDED_BY(mutex);
  bool opening_stopped ABSL_GUARDED_BY(mutex) = false;
};

SessionClient::SessionClient(const std::string& name, std::shared_ptr<Credentials> keys,
                             const std::string& host, bool insecure)
    : impl_(std::make_unique<Impl>()) {
  impl_->name = name;
  impl_->keys = std::move(keys);
  impl_->host = host;
  impl_->insecure = insecure;
}

SessionClient::~SessionClient() = default;

void SessionClient::SetAddress(const std::string& address) {
  absl::MutexLock lock(&impl_->mutex);
  impl_->address = address;
  impl_->stub.reset();
}

absl::StatusOr<OpenedSession> SessionClient::Open(const VolumeConfig& config, Epoch epoch,
                                                  uint64_t session, Seq base, int64_t deadline_ms,
                                                  const KeyOffer* key, bool plain) {
  return DoOpen(config, epoch, session, base, deadline_ms, key, /*key_only=*/false, plain);
}

absl::StatusOr<OpenedSession> SessionClient::GiveKey(const VolumeConfig& config, Epoch epoch,
                                                     uint64_t session, Seq base,
                                                     int64_t deadline_ms, const KeyOffer& key) {
  return DoOpen(config, epoch, session, base, deadline_ms, &key, /*key_only=*/true,
                /*plain=*/false);
}

absl::StatusOr<OpenedSession> SessionClient::DoOpen(const VolumeConfig& config, Epoch epoch,
                                                    uint64_t session, Seq base, int64_t deadline_ms,
                                                    const KeyOffer* key, bool key_only,
                                                    bool plain) {
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
  request.set_version(kSaliusVersion);
  request.set_key_only(key_only);
  request.set_plain(plain);
  if (key != nullptr) {
    control::OpenSessionRequest::Key* const offered = request.mutable_key();
    offered->set_key_id(key->key_id);
    offered->set_record_key(key->record_key.data(), key->record_key.size());
    offered->set_ack_sender(key->ack_sender);
  }
  control::OpenSessionResponse response;
  const absl::Status status = impl_->Run(
      true, deadline_ms, [&](control::Replica::Stub& stub, grpc::ClientContext& context) {
        return stub.OpenSession(&context, request, &response);
      });
  if (!status.ok()) return status;
  return OpenedFrom(impl_->name, response, key != nullptr && key->required);
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
