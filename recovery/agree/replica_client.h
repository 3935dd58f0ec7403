// Recovery's connection to one replica: an interface, so that tests use replicas of their own, and
// the gRPC client that recovery uses.
//
// Threads: one client is used by one thread at a time, but Cancel() and CancelCall() may come from
// any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "recovery/agree/quorum.h"

namespace salius {
class Credentials;  // transport/credentials.h
}  // namespace salius

namespace salius::recovery {

class ReplicaClient {
 public:
  virtual ~ReplicaClient() = default;

  struct FenceResult {
    bool accepted = false;
    Answer answer;  // inventory.promised_epoch: the promise in force
  };
  // Asks for the promise. Errors: UNAVAILABLE, DEADLINE_EXCEEDED (outcome unknown; asking again is
  // harmless), others as the replica gives them. A refusal is not an error.
  virtual absl::StatusOr<FenceResult> Fence(const VolumeId& volume, Epoch epoch, uint64_t token,
                                            uint64_t timeout_ms) = 0;
  virtual absl::StatusOr<Answer> Ask(const VolumeId& volume, uint64_t timeout_ms) = 0;

  // Streams the records of `epoch` above `after`: first `on_count(count, incarnation)`, then
  // `on_chunk(bytes)` for each chunk, whose checksum was verified. Either may return an error,
  // which ends the stream and is returned; CANCELLED from on_chunk means "enough". DATA_LOSS when a
  // chunk is damaged.
  virtual absl::Status Fetch(const VolumeId& volume, Epoch epoch, Seq after, uint64_t timeout_ms,
                             const std::function<absl::Status(uint64_t, Incarnation)>& on_count,
                             const std::function<absl::Status(std::string)>& on_chunk) = 0;

  virtual absl::Status Drop(const VolumeId& volume, Epoch epoch, uint64_t timeout_ms) = 0;

  // Makes the present call fail soon with CANCELLED. From any thread.
  virtual void CancelCall() = 0;
  // Does the same for every later call, too.
  virtual void Cancel() = 0;
};

class ReplicaConnector {
 public:
  virtual ~ReplicaConnector() = default;
  // Makes a client. Never fails: an address that leads nowhere fails in the first call.
  virtual std::unique_ptr<ReplicaClient> Connect(const std::string& address) = 0;
};

// Returns a connector for gRPC with the keys of this process; null: none.
std::unique_ptr<ReplicaConnector> MakeGrpcConnector(std::shared_ptr<Credentials> keys = nullptr);

}  // namespace salius::recovery
