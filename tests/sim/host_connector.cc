#include "tests/sim/host_connector.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace salius::sim {

class HostConnector::Client : public recovery::ReplicaClient {
 public:
  Client(HostConnector& owner, size_t index) : owner_(owner), index_(index) {}

  absl::StatusOr<FenceResult> Fence(const VolumeId& volume, Epoch epoch, uint64_t token,
                                    uint64_t) override {
    SALIUS_RETURN_IF_ERROR(Reach());
    const auto fenced = host().Fence(volume, epoch, token);
    SALIUS_RETURN_IF_ERROR(fenced.status());
    if (fenced->accepted) host().NoteLife(now());
    FenceResult result;
    result.accepted = fenced->accepted;
    result.answer = Answer(volume);
    result.answer.inventory.promised_epoch = fenced->promised_epoch;
    return result;
  }
  absl::StatusOr<recovery::Answer> Ask(const VolumeId& volume, uint64_t) override {
    SALIUS_RETURN_IF_ERROR(Reach());
    return Answer(volume);
  }
  absl::Status Fetch(const VolumeId& volume, Epoch epoch, Seq after, uint64_t,
                     const std::function<absl::Status(uint64_t, Incarnation)>& on_count,
                     const std::function<absl::Status(std::string)>& on_chunk) override {
    SALIUS_RETURN_IF_ERROR(Reach());
    SALIUS_ASSIGN_OR_RETURN(const Acceptor::FetchStart start,
                            acceptor().StartFetch(volume, epoch, after));
    host().NoteLife(now());
    SALIUS_RETURN_IF_ERROR(on_count(start.count, acceptor().incarnation()));
    Seq cursor = start.start;
    while (cursor < start.upto) {
      std::string chunk;
      SALIUS_RETURN_IF_ERROR(
          acceptor().ReadRecords(volume, epoch, start, &cursor, 2000, &chunk).status());
      if (owner_.world_.stream_breaks()) return absl::UnavailableError("the stream broke");
      if (chunk.empty()) continue;
      const absl::Status taken = on_chunk(std::move(chunk));
      if (absl::IsCancelled(taken)) return absl::OkStatus();
      SALIUS_RETURN_IF_ERROR(taken);
    }
    return absl::OkStatus();
  }
  absl::Status Drop(const VolumeId& volume, Epoch epoch, uint64_t) override {
    SALIUS_RETURN_IF_ERROR(Reach());
    return host().Drop(volume, epoch);
  }
  void CancelCall() override {}
  void Cancel() override {}

 private:
  absl::Status Reach() const {
    return owner_.world_.reachable(index_) ? absl::OkStatus()
                                           : absl::UnavailableError("unreachable");
  }
  int64_t now() const { return owner_.world_.now(); }
  ReplicaHost& host() { return *owner_.hosts_[index_]; }
  Acceptor& acceptor() { return host().acceptor(); }
  recovery::Answer Answer(const VolumeId& volume) {
    const Inventory from = acceptor().GetInventory(host().Clock(now()), volume);
    recovery::Answer answer;
    answer.address = owner_.addresses_[index_];
    answer.incarnation = acceptor().incarnation();
    answer.inventory = {from.known,           from.epoch,         from.base,
                        from.contiguous,      from.highest,       from.records,
                        from.bytes,           from.trimmed,       from.durable_mark,
                        from.checkpoint_mark, from.promised_epoch};
    return answer;
  }

  HostConnector& owner_;
  const size_t index_;
};

std::unique_ptr<recovery::ReplicaClient> HostConnector::Connect(const std::string& address) {
  const auto index = std::find(addresses_.begin(), addresses_.end(), address) - addresses_.begin();
  return std::make_unique<Client>(*this, static_cast<size_t>(index));
}

}  // namespace salius::sim
