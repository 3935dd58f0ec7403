// The daemon's end of the gate page: the memory, and the wake-up of its sleepers.
//
// Threads: any.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/gate/page.h"
#include "common/file.h"

namespace salius::gate {

class Memory {
 public:
  // Makes the page. Errors: UNIMPLEMENTED when the kernel cannot seal memory against later writes
  // (before Linux 5.1).
  static absl::StatusOr<std::unique_ptr<Memory>> Make();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Page& page() { return *page_; }
  // Returns the memfd. Another process can map it read-only, and never write it.
  int fd() const { return fd_.get(); }
  // Wakes the outputs that sleep.
  void Wake();

 private:
  Memory(UniqueFd fd, Page* page) : fd_(std::move(fd)), page_(page) {}

  const UniqueFd fd_;
  Page* const page_;
};

}  // namespace salius::gate
