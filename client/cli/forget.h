// `salius forget`: has replicas forget a volume that is used no more.
#pragma once

#include <string>

#include "absl/types/span.h"

namespace salius::cli {

// Runs the subcommand; `words` are the arguments after its name. Returns the exit code.
int RunForget(absl::Span<const std::string> words);

}  // namespace salius::cli
