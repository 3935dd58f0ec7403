// `salius init`: makes a volume in a directory.
#pragma once

#include <string>

#include "absl/types/span.h"

namespace salius::cli {

// Runs the subcommand; `words` are the arguments after its name. Returns the exit code.
int RunInit(absl::Span<const std::string> words);

}  // namespace salius::cli
