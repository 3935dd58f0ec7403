// A key of sealed datagrams: of AES-128-GCM.
//
// Needs the standard library only: processes of a direct volume use it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace salius {

inline constexpr size_t kSealKeyBytes = 16;
using SealKey = std::array<uint8_t, kSealKeyBytes>;

}  // namespace salius
