// Says beforehand which calls of a program the preload library sees: the core of
// `salius doctor --preload`. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace salius::preload {

enum class Cover {
  kLogged,     // replicated
  kUncovered,  // makes the file's next sync a real fsync(2)
  kRefused,    // answered ENOSYS, so that the program must fall back
};

struct CoveredCall {
  std::string name;
  Cover cover;
  std::string_view note;  // the reason; "" for kLogged
};

struct Coverage {
  // Why the program is not started; "" when it is.
  std::string refusal;
  // The functions that it imports and that matter here, in the file's order.
  std::vector<CoveredCall> calls;
  // The libraries that it names, whose calls count as the program's.
  std::vector<std::string> libraries;
};

// Reads an ELF file. `image`: its bytes, which are not trusted. `set_id`: the file changes the
// identity of the program. INVALID_ARGUMENT: the bytes are no ELF file for this machine, or its
// tables do not lie in it.
absl::StatusOr<Coverage> ReadCoverage(std::string_view image, bool set_id);

}  // namespace salius::preload
