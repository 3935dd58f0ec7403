// Reads what a program's ELF file says about the calls that it makes: is it linked dynamically,
// which functions does it import, was it built by Go?
//
// pure: works on the file's bytes; no file is opened here. Bytes come from anyone: every offset is
// checked. ELF64 and little-endian only, as the preload library is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace salius::cli {

struct ElfImports {
  bool dynamic = false;                // it has an interpreter or needed libraries
  bool go = false;                     // it has Go's build notes or sections
  std::vector<std::string> libraries;  // DT_NEEDED, in the file's order
  std::vector<std::string> functions;  // undefined dynamic symbols, sorted, without versions
};

// Returns the imports of the program or library `file`. Errors: INVALID_ARGUMENT when it is no
// ELF64 little-endian file, or damaged.
absl::StatusOr<ElfImports> ReadElfImports(absl::Span<const uint8_t> file);

}  // namespace salius::cli
