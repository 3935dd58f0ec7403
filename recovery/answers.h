// A replica's messages (proto/control.proto) as recovery's values: what is believed of them.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"
#include "recovery/quorum.h"

namespace salius::recovery {

// DATA_LOSS for a number that no replica can come to. `address`: for what is said of it. Of a fence
// the promise is the one in force after it.
absl::StatusOr<Answer> AnswerFrom(const std::string& address,
                                  const control::InventoryResponse& message);
absl::StatusOr<Answer> AnswerFrom(const std::string& address,
                                  const control::FenceResponse& message);

// DATA_LOSS when the records arrived damaged.
absl::Status CheckChunk(const std::string& address, const control::FetchResponse& message);

}  // namespace salius::recovery
