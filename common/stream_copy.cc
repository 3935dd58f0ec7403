#include "common/stream_copy.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace salius {

void StreamCopy(void* to, const void* from, size_t size) {
#ifdef __SSE2__
  constexpr size_t kLine = 64;
  constexpr size_t kPart = sizeof(__m128i);
  if (size >= kStreamBytes) {
    auto* out = static_cast<uint8_t*>(to);
    const auto* in = static_cast<const uint8_t*>(from);
    const size_t head = (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine;
    std::memcpy(out, in, head);
    size_t at = head;
    for (; at + kLine <= size; at += kLine) {
      __m128i line[kLine / kPart];
      std::memcpy(line, in + at, kLine);
      for (size_t part = 0; part < kLine / kPart; ++part) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(out + at) + part, line[part]);
      }
    }
    std::memcpy(out + at, in + at, size - at);
    _mm_sfence();
    return;
  }
#endif
  std::memcpy(to, from, size);
}

}  // namespace salius
