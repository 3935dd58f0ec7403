// `salius acknowledge`: notes durably that the administrator knows of the records that forced
// recoveries gave up. Until then `salius status` and the log report them.
#pragma once

#include <string>

#include "absl/types/span.h"

namespace salius::cli {

// Runs the subcommand; `words` are the arguments after its name. Returns the exit code.
int RunAcknowledge(absl::Span<const std::string> words);

}  // namespace salius::cli
