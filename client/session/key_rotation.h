// The interval between two changes of a session's key, s: the default, and the longest.
#pragma once

#include <cstdint>

namespace salius {

inline constexpr uint64_t kKeyRotationS = 3600;
inline constexpr uint64_t kMostKeyRotationS = 7 * 86400;

}  // namespace salius
