// Converts a replica's messages (proto/control.proto) to recovery's values, and checks them.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"
#include "recovery/agree/quorum.h"

namespace salius::recovery {

// Return the answer in a message. DATA_LOSS for a number that no replica can reach. `address` names
// the replica in errors. The promise in a fence's answer is the one in force after the fence.
absl::StatusOr<Answer> AnswerFrom(const std::string& address,
                                  const control::InventoryResponse& message);
absl::StatusOr<Answer> AnswerFrom(const std::string& address,
                                  const control::FenceResponse& message);

// Checks a message with records. DATA_LOSS when they arrived damaged.
absl::Status CheckChunk(const std::string& address, const control::FetchResponse& message);

}  // namespace salius::recovery
