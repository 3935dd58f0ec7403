// `salius keys`: makes and keeps a private certificate authority and the files with keys.
#pragma once

#include <string>

#include "absl/types/span.h"

namespace salius::cli {

// Runs `salius keys` with its arguments. Returns an ExitCode.
int RunKeys(absl::Span<const std::string> words);

}  // namespace salius::cli
