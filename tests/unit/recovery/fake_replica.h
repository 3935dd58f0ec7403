// Replicas inside the test's process, reached through recovery's own interface, with the rules of
// proto/control.proto and faults to switch on.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "recovery/agree/replica_client.h"
#include "tests/unit/recovery/test_util.h"

namespace salius::recovery {

// A replica's records of one volume. The test writes it before a recovery and reads it after one.
struct FakeReplica {
  Incarnation incarnation = 1;
  bool known = true;
  Epoch epoch = 0;
  Seq base = 1;
  std::map<Seq, std::string> records;  // encoded
  Seq trimmed = 0;
  Seq durable_mark = 0;
  Seq checkpoint_mark = 0;
  Epoch promised = 0;
  uint64_t token = 0;

  // Faults that a test switches on.
  bool unreachable = false;
  int unreachable_times = 0;    // the next calls fail
  bool hangs = false;           // answers nothing until cancelled
  int break_after_chunks = -1;  // each stream ends with an error after this many
  bool damage_chunks = false;
  bool short_stream = false;  // ends early without an error
  bool fetch_fails = false;
  bool fetch_hangs = false;  // until the call is cancelled
  bool drop_fails = false;
  std::function<void()> on_fetch;  // called in each, in recovery's thread, before it streams

  // Counts of the calls.
  int fences = 0, asks = 0, fetches = 0, drops = 0;
  uint64_t chunks_sent = 0;

  Seq contiguous() const {
    Seq seq = std::max(trimmed, base - 1);
    while (records.contains(seq + 1)) ++seq;
    return seq;
  }
  Inventory inventory() const {
    Inventory out;
    out.known = known;
    if (!known) return out;
    out.epoch = epoch;
    out.base = base;
    out.contiguous = contiguous();
    out.highest =
        records.empty() ? out.contiguous : std::max(out.contiguous, records.rbegin()->first);
    out.records = records.size();
    for (const auto& [seq, record] : records) out.bytes += record.size();
    out.trimmed = trimmed;
    out.durable_mark = durable_mark;
    out.checkpoint_mark = checkpoint_mark;
    out.promised_epoch = promised;
    return out;
  }
};

class FakeConnector : public ReplicaConnector {
 public:
  FakeReplica& at(const std::string& address) { return replicas_[address]; }
  std::unique_ptr<ReplicaClient> Connect(const std::string& address) override;
  size_t records_per_chunk = 3;

 private:
  class Client;
  std::map<std::string, FakeReplica> replicas_;
};

class FakeConnector::Client : public ReplicaClient {
 public:
  Client(std::string address, FakeReplica* replica, size_t per_chunk)
      : address_(std::move(address)), replica_(replica), per_chunk_(per_chunk) {}

  absl::StatusOr<FenceResult> Fence(const VolumeId&, Epoch epoch, uint64_t token,
                                    uint64_t timeout_ms) override {
    ++replica_->fences;
    if (absl::Status status = Reach(timeout_ms); !status.ok()) return status;
    FenceResult result;
    result.accepted = (epoch > replica_->promised && epoch > replica_->epoch) ||
                      (epoch == replica_->promised && token == replica_->token);
    if (result.accepted) {
      replica_->promised = epoch;
      replica_->token = token;
    }
    result.answer = {address_, replica_->incarnation, replica_->inventory()};
    result.answer.inventory.promised_epoch = replica_->promised;
    return result;
  }

  absl::StatusOr<Answer> Ask(const VolumeId&, uint64_t timeout_ms) override {
    ++replica_->asks;
    if (absl::Status status = Reach(timeout_ms); !status.ok()) return status;
    return Answer{address_, replica_->incarnation, replica_->inventory()};
  }

  absl::Status Fetch(const VolumeId&, Epoch, Seq after, uint64_t timeout_ms,
                     const std::function<absl::Status(uint64_t, Incarnation)>& on_count,
                     const std::function<absl::Status(std::string)>& on_chunk) override {
    ++replica_->fetches;
    if (absl::Status status = Reach(timeout_ms); !status.ok()) return status;
    if (replica_->on_fetch) replica_->on_fetch();
    if (replica_->fetch_hangs) {
      const absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&call_cancelled_), absl::Milliseconds(timeout_ms));
      const bool cancelled = std::exchange(call_cancelled_, false);
      return cancelled ? absl::CancelledError("cancelled") : absl::DeadlineExceededError("hangs");
    }
    if (replica_->fetch_fails) return absl::UnavailableError("fetch refused");
    const auto first = replica_->records.upper_bound(after);
    uint64_t count = static_cast<uint64_t>(std::distance(first, replica_->records.end()));
    if (absl::Status status = on_count(count, replica_->incarnation); !status.ok()) return status;
    int chunks = 0;
    for (auto at = first; at != replica_->records.end();) {
      if (chunks++ == replica_->break_after_chunks) return absl::UnavailableError("stream broke");
      if (replica_->short_stream && chunks > 1) return absl::OkStatus();
      std::string chunk;
      for (size_t i = 0; i < per_chunk_ && at != replica_->records.end(); ++i, ++at) {
        chunk += at->second;
      }
      if (replica_->damage_chunks) chunk[chunk.size() / 2] ^= 1;
      ++replica_->chunks_sent;
      const absl::Status taken = on_chunk(std::move(chunk));
      if (absl::IsCancelled(taken)) return absl::OkStatus();
      if (!taken.ok()) return taken;
    }
    return absl::OkStatus();
  }

  absl::Status Drop(const VolumeId&, Epoch epoch, uint64_t) override {
    ++replica_->drops;
    if (replica_->drop_fails) return absl::UnavailableError("no drop");
    if (replica_->epoch <= epoch) {
      replica_->records.clear();
      replica_->known = false;
      replica_->epoch = 0;
    }
    return absl::OkStatus();
  }

  void CancelCall() override {
    const absl::MutexLock lock(&mutex_);
    call_cancelled_ = true;
  }
  void Cancel() override {
    const absl::MutexLock lock(&mutex_);
    cancelled_ = true;
  }

 private:
  absl::Status Reach(uint64_t timeout_ms) {
    if (replica_->hangs) {
      const absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&cancelled_), absl::Milliseconds(timeout_ms));
      return cancelled_ ? absl::CancelledError("cancelled")
                        : absl::DeadlineExceededError("no answer");
    }
    if (replica_->unreachable) return absl::UnavailableError("connection refused");
    if (replica_->unreachable_times > 0) {
      --replica_->unreachable_times;
      return absl::UnavailableError("connection refused");
    }
    return absl::OkStatus();
  }

  const std::string address_;
  FakeReplica* const replica_;
  const size_t per_chunk_;
  absl::Mutex mutex_;
  bool cancelled_ = false;
  bool call_cancelled_ = false;
};

inline std::unique_ptr<ReplicaClient> FakeConnector::Connect(const std::string& address) {
  return std::make_unique<Client>(address, &replicas_[address], records_per_chunk);
}

}  // namespace salius::recovery
