// `salius forget`: makes replicas forget a volume that is no longer used.
#pragma once

#include <string>

#include "absl/types/span.h"

namespace salius::cli {

// Runs the subcommand; `words` are the arguments after its name. Returns the exit code.
int RunForget(absl::Span<const std::string> words);

}  // namespace salius::cli
