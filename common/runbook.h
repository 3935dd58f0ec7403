// The sections of docs/runbook.md that messages name, for the operator who must act.
// tests/language/anchors.py checks that each named section exists.
#pragma once

#include <string>
#include <string_view>

namespace salius {

// Returns a reference to a section, to end a message with. `section` is the anchor of its heading; it
// is a literal in the call, where the check finds it.
inline std::string SeeRunbook(std::string_view section) {
  return "see docs/runbook.md#" + std::string(section);
}

}  // namespace salius
