// Reads the imports of a program's ELF file, of any bytes.
#include "client/cli/elf_imports.h"

#include <algorithm>

#include "common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto imports = salius::cli::ReadElfImports({data, size});
  if (!imports.ok()) return 0;
  SALIUS_CHECK(std::is_sorted(imports->functions.begin(), imports->functions.end()));
  for (const std::string& function : imports->functions) SALIUS_CHECK(function.size() < size);
  for (const std::string& library : imports->libraries) SALIUS_CHECK(library.size() < size);
  return 0;
}
