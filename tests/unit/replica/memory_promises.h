// A promise file in memory: it outlives a process, and a host that keeps its disk.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "replica/promise_store.h"

namespace salius {

class MemoryPromises final : public PromiseStore {
 public:
  absl::StatusOr<std::string> Read() override {
    if (!content.has_value()) return absl::NotFoundError("there is none");
    return *content;
  }
  absl::Status Write(const std::string& bytes) override {
    ++writes;
    if (fails) return absl::InternalError("the disk fails");
    content = bytes;
    return absl::OkStatus();
  }
  void SetAside() override { content.reset(); }
  std::string name() const override { return "memory"; }

  std::optional<std::string> content;
  bool fails = false;
  int writes = 0;
};

}  // namespace salius
