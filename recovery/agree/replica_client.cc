#include "recovery/agree/replica_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/event.h"
#include "proto/control.grpc.pb.h"
#include "proto/control.pb.h"
#include "recovery/agree/answers.h"
#include "transport/credentials.h"
#include "transport/grpc_factory.h"
#include "transport/handshake_probe.h"

namespace salius::recovery {
namespace {

std::string Bytes(const VolumeId& volume) {
  return std::string(reinterpret_cast<const char*>(volume.bytes.data()), volume.bytes.size());
}

class GrpcClient : public ReplicaClient {
 public:
  GrpcClient(std::string address, std::shared_ptr<Credentials> keys)
      : address_(std::move(address)), keys_(std::move(keys)) {
    Connect();
  }

  absl::StatusOr<FenceResult> Fence(const VolumeId& volume, Epoch epoch, uint64_t token,
                                    uint64_t timeout_ms) override {
    control::FenceRequest request;
    request.set_volume(Bytes(volume));
    request.set_epoch(epoch);
    request.set_token(token);
    control::FenceResponse response;
    Call call(this, timeout_ms);
    SALIUS_RETURN_IF_ERROR(call.Result(stub_->Fence(&call.context, request, &response)));
    SALIUS_ASSIGN_OR_RETURN(Answer answer, AnswerFrom(address_, response));
    return FenceResult{response.accepted(), std::move(answer)};
  }

  absl::StatusOr<Answer> Ask(const VolumeId& volume, uint64_t timeout_ms) override {
    control::InventoryRequest request;
    request.set_volume(Bytes(volume));
    control::InventoryResponse response;
    Call call(this, timeout_ms);
    SALIUS_RETURN_IF_ERROR(call.Result(stub_->Inventory(&call.context, request, &response)));
    return AnswerFrom(address_, response);
  }

  absl::Status Fetch(const VolumeId& volume, Epoch epoch, Seq after, uint64_t timeout_ms,
                     const std::function<absl::Status(uint64_t, Incarnation)>& on_count,
                     const std::function<absl::Status(std::string)>& on_chunk) override {
    control::FetchRequest request;
    request.set_volume(Bytes(volume));
    request.set_epoch(epoch);
    request.set_after(after);
    Call call(this, timeout_ms);
    const auto reader = stub_->Fetch(&call.context, request);
    absl::Status ours;
    bool first = true;
    control::FetchResponse response;
    while (ours.ok() && reader->Read(&response)) {
      if (first) {
        first = false;
        ours = on_count(response.count(), response.incarnation());
      }
      if (ours.ok() && !response.records().empty()) {
        ours = CheckChunk(address_, response);
        if (ours.ok()) ours = on_chunk(std::move(*response.mutable_records()));
      }
    }
    if (!ours.ok()) call.context.TryCancel();
    const absl::Status theirs = call.Result(reader->Finish());
    if (!ours.ok()) return absl::IsCancelled(ours) ? absl::OkStatus() : ours;
    if (theirs.ok() && first) {
      return absl::DataLossError(
          absl::StrFormat("replica %s: an empty stream, without a count", address_));
    }
    return theirs;
  }

  absl::Status Drop(const VolumeId& volume, Epoch epoch, uint64_t timeout_ms) override {
    control::DropVolumeRequest request;
    request.set_volume(Bytes(volume));
    request.set_epoch(epoch);
    control::DropVolumeResponse response;
    Call call(this, timeout_ms);
    return call.Result(stub_->DropVolume(&call.context, request, &response));
  }

  void CancelCall() override {
    const absl::MutexLock lock(&mutex_);
    if (current_ != nullptr) current_->TryCancel();
  }

  void Cancel() override {
    const absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    if (current_ != nullptr) current_->TryCancel();
  }

 private:
  void Connect() {
    // An address of a name gets 2 s before its next is tried. An earlier client's pause after a
    // failure does not apply to this one.
    stub_ = control::Replica::NewStub(TcpChannel(address_, {.connect_ms = 2000,
                                                            .own_connection = true,
                                                            .keepalive = true,
                                                            .any_size = true,
                                                            .keys = keys_}));
  }

  // One call: its context, known to Cancel() while it lives, and its end when it takes too long.
  // gRPC's own deadlines use the wall clock, which may be set back meanwhile.
  class Call {
   public:
    Call(GrpcClient* owner, uint64_t timeout_ms) : client_(owner), timeout_ms_(timeout_ms) {
      {
        const absl::MutexLock lock(&client_->mutex_);
        client_->current_ = &context;
        if (client_->cancelled_) context.TryCancel();
      }
      watchdog_ = std::thread([this] {
        overdue_ = !ended_.WaitFor(std::chrono::milliseconds(timeout_ms_));
        if (overdue_) context.TryCancel();
      });
    }
    ~Call() {
      End();
      const absl::MutexLock lock(&client_->mutex_);
      client_->current_ = nullptr;
    }

    // Returns the result of the call. After a failed connection the next call makes a new one, and
    // is not refused because the pause of the failed one is not over.
    absl::Status Result(const grpc::Status& status) {
      End();
      if (overdue_ && !status.ok()) {
        client_->Connect();
        return absl::DeadlineExceededError(
            absl::StrFormat("replica %s: no answer within %d ms", client_->address_, timeout_ms_));
      }
      if (status.error_code() == grpc::StatusCode::UNAVAILABLE) client_->Connect();
      return ExplainedStatus(status, "replica " + client_->address_,
                             {.address = client_->address_, .host = "", .keys = client_->keys_});
    }

    grpc::ClientContext context;

   private:
    void End() {
      if (!watchdog_.joinable()) return;
      ended_.Set();
      watchdog_.join();
    }

    GrpcClient* const client_;
    const uint64_t timeout_ms_;
    Event ended_;
    bool overdue_ = false;  // of the watchdog, until it was joined
    std::thread watchdog_;
  };

  const std::string address_;
  const std::shared_ptr<Credentials> keys_;
  std::unique_ptr<control::Replica::Stub> stub_;
  absl::Mutex mutex_;
  grpc::ClientContext* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

class GrpcConnector : public ReplicaConnector {
 public:
  explicit GrpcConnector(std::shared_ptr<Credentials> keys) : keys_(std::move(keys)) {}

  std::unique_ptr<ReplicaClient> Connect(const std::string& address) override {
    return std::make_unique<GrpcClient>(address, keys_);
  }

 private:
  const std::shared_ptr<Credentials> keys_;
};

}  // namespace

std::unique_ptr<ReplicaConnector> MakeGrpcConnector(std::shared_ptr<Credentials> keys) {
  return std::make_unique<GrpcConnector>(std::move(keys));
}

}  // namespace salius::recovery
