// A small JSON writer for what the subcommands print.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace salius::cli {

// Returns the text in quotes, with control characters and quotes escaped. Bytes above 127 pass
// unchanged.
std::string JsonQuote(std::string_view text);

class JsonObject {
 public:
  JsonObject& Text(std::string_view name, std::string_view value);
  JsonObject& Number(std::string_view name, uint64_t value);
  // Writes the value with three decimals.
  JsonObject& Fraction(std::string_view name, double value);
  JsonObject& Bool(std::string_view name, bool value);
  // Adds `json`, a value that is already written.
  JsonObject& Raw(std::string_view name, std::string_view json);
  std::string ToString() const;

 private:
  std::string members_;
};

// Returns "[a,b]" of values that are already written.
std::string JsonArray(const std::vector<std::string>& values);

}  // namespace salius::cli
