// JSON for programs: nlohmann-json, with members in the order in which they were added.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace salius {

using Json = nlohmann::ordered_json;

// Returns the value as one line without spaces. Each sequence of bytes that is not UTF-8, which a
// file name may have, becomes U+FFFD.
inline std::string JsonLine(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Returns the number rounded to three decimals, for figures.
inline Json JsonFraction(double value) { return std::round(value * 1000) / 1000; }

}  // namespace salius
