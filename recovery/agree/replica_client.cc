#include "recovery/agree/replica_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/strings.h"
#include "proto/control.grpc.pb.h"
#include "proto/control.pb.h"
#include "recovery/agree/answers.h"

namespace salius::recovery {
namespace {

// A dead host is detected after this time, also in the middle of a stream.
constexpr int kKeepaliveMs = 10000;
constexpr int kKeepaliveTimeoutMs = 5000;

absl::Status FromGrpc(const std::string& address, const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrFormat("replica %s: %s", address,
                                      Printable(status.error_message(), NewLines::kReplace)));
}

std::string Bytes(const VolumeId& volume) {
  return std::string(reinterpret_cast<const char*>(volume.bytes.data()), volume.bytes.size());
}

class GrpcClient : public ReplicaClient {
 public:
  explicit GrpcClient(std::string address) : address_(std::move(address)) { Connect(); }

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
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    // This bounds also the wait for one address of a name before its next is tried.
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
    // Each client has its own connection: an earlier one's back-off does not apply to it.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub_ = control::Replica::NewStub(
        grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
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
        std::unique_lock<std::mutex> lock(mutex_);
        const auto limit =
            std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms_);
        overdue_ = !ended_.wait_until(lock, limit, [this] { return has_ended_; });
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
      return FromGrpc(client_->address_, status);
    }

    grpc::ClientContext context;

   private:
    void End() {
      if (!watchdog_.joinable()) return;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        has_ended_ = true;
      }
      ended_.notify_all();
      watchdog_.join();
    }

    GrpcClient* const client_;
    const uint64_t timeout_ms_;
    std::mutex mutex_;
    std::condition_variable ended_;
    bool has_ended_ = false;
    bool overdue_ = false;
    std::thread watchdog_;
  };

  const std::string address_;
  std::unique_ptr<control::Replica::Stub> stub_;
  absl::Mutex mutex_;
  grpc::ClientContext* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

class GrpcConnector : public ReplicaConnector {
 public:
  std::unique_ptr<ReplicaClient> Connect(const std::string& address) override {
    return std::make_unique<GrpcClient>(address);
  }
};

}  // namespace

std::unique_ptr<ReplicaConnector> MakeGrpcConnector() { return std::make_unique<GrpcConnector>(); }

}  // namespace salius::recovery
