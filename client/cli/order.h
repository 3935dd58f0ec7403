// `salius osync` and `salius dsync`: order or durability of a file on a mount, for scripts.
#pragma once

#include <string>

#include "absl/types/span.h"

namespace salius::cli {

// Run the subcommand; `words` are the arguments after its name. Return the exit code.
int RunOsync(absl::Span<const std::string> words);
int RunDsync(absl::Span<const std::string> words);

}  // namespace salius::cli
