// `salius bench`: measures latency and throughput of synchronous writes on a path. It measures the
// floors they are built on beside them, in one interleaved run.
#pragma once

#include <string>

#include "absl/types/span.h"

namespace salius::cli {

// Runs the subcommand; `words` are the arguments after its name. Returns the exit code.
int RunBench(absl::Span<const std::string> words);

}  // namespace salius::cli
