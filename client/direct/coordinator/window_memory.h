// The memory of a shared window: a memfd that no process can shrink or grow, mapped in this
// process.
//
// Threads: any; the memory itself is shared.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "client/direct/window/layout.h"
#include "common/file.h"

namespace salius::direct {

class WindowMemory {
 public:
  // Makes the memory and formats it. RESOURCE_EXHAUSTED when a limit of this process (ulimit -f,
  // ulimit -v) or the system's memory is too small for it; otherwise the system's error.
  static absl::StatusOr<WindowMemory> Make(const WindowSpec& spec);
  WindowMemory(WindowMemory&& other) noexcept;
  WindowMemory& operator=(WindowMemory&& other) = delete;
  ~WindowMemory();

  const SharedWindow& window() const { return window_; }
  int fd() const { return fd_.get(); }
  uint64_t bytes() const { return bytes_; }

 private:
  WindowMemory(UniqueFd fd, void* memory, uint64_t bytes)
      : fd_(std::move(fd)), memory_(memory), bytes_(bytes) {}

  UniqueFd fd_;
  void* memory_;  // null: moved away
  uint64_t bytes_;
  SharedWindow window_;
};

}  // namespace salius::direct
