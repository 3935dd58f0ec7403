// A sink that applies nothing, for tests of one class of the volume.
#pragma once

#include "client/session/record_stream.h"

namespace salius {

class NullSink final : public ApplySink {
 public:
  absl::StatusOr<size_t> Apply(absl::Span<const RecordRef> records) override {
    if (ApplyResult* const result = records[0]->result(); result != nullptr)
      result->status = status;
    return 1;
  }
  absl::Status SyncApplied() override { return absl::OkStatus(); }

  absl::Status status;  // the result of every record
};

}  // namespace salius
