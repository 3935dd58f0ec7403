#include "client/cli/json.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/strings.h"

namespace salius::cli {

std::string JsonQuote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  quoted += '"';
  return quoted;
}

JsonObject& JsonObject::Raw(std::string_view name, std::string_view json) {
  if (!members_.empty()) members_ += ',';
  absl::StrAppend(&members_, JsonQuote(name), ":", Av(json));
  return *this;
}

JsonObject& JsonObject::Text(std::string_view name, std::string_view value) {
  return Raw(name, JsonQuote(value));
}

JsonObject& JsonObject::Number(std::string_view name, uint64_t value) {
  return Raw(name, absl::StrCat(value));
}

JsonObject& JsonObject::Fraction(std::string_view name, double value) {
  return Raw(name, absl::StrFormat("%.3f", value));
}

JsonObject& JsonObject::Bool(std::string_view name, bool value) {
  return Raw(name, value ? "true" : "false");
}

std::string JsonObject::ToString() const { return "{" + members_ + "}"; }

std::string JsonArray(const std::vector<std::string>& values) {
  return absl::StrCat("[", absl::StrJoin(values, ","), "]");
}

}  // namespace salius::cli
