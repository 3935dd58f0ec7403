// `salius doctor --preload BINARY`: which of a program's calls `salius-run --direct` covers.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/elf_imports.h"
#include "client/cli/findings.h"

namespace salius::cli {

struct BinaryFacts {
  std::string path;
  bool script = false;  // begins with "#!"
  bool set_id = false;  // set-user-id or set-group-id, or with file capabilities
  ElfImports imports;   // of the file itself, not of its libraries
};

// Reads the program. Errors: those of opening and reading it; INVALID_ARGUMENT when it is neither a
// script nor an ELF file of this architecture.
absl::StatusOr<BinaryFacts> GatherBinaryFacts(const std::string& path);

// Judges the program. FAIL: salius-run refuses it, or sees none of its calls.
void JudgeBinary(const BinaryFacts& facts, Findings& findings);

}  // namespace salius::cli
