// Gives up capabilities(7) that a process does not need.
//
// Linux keeps capabilities per thread. So call KeepOnly in the main thread before others are made:
// they inherit what is left.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace salius {

// A capability that a process keeps.
struct Capability {
  int number;             // CAP_... of linux/capability.h
  std::string_view name;  // "CAP_CHOWN"
  std::string_view why;   // what the process needs it for
};

// Gives up, for the calling thread and the threads and programs that it starts, every capability
// that is not in `keep`. Does not give any. Returns those of `keep` that the thread still has.
// Errors: those of capset(2).
absl::StatusOr<std::vector<Capability>> KeepOnly(absl::Span<const Capability> keep);

// Returns "CAP_CHOWN (owners of files), ..." for the log; "none" when `kept` is empty. Pure.
std::string CapabilitiesText(absl::Span<const Capability> kept);

}  // namespace salius
