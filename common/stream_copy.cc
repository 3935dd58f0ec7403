#include "common/stream_copy.h"

#include <cstdint>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace salius {
#ifdef __x86_64__
namespace {

constexpr size_t kLine = 64;

// Copies whole cache lines; `to` is where a line of the cache begins.
__attribute__((target("avx"))) void CopyLines(uint8_t* to, const uint8_t* from, size_t lines) {
  for (; lines > 0; --lines, to += kLine, from += kLine) {
    const __m256i first = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i second = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + 1);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), first);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to) + 1, second);
  }
}

}  // namespace

void StreamCopy(void* to, const void* from, size_t size) {
  if (size < kStreamBytes || !__builtin_cpu_supports("avx")) {
    std::memcpy(to, from, size);
    return;
  }
  auto* const out = static_cast<uint8_t*>(to);
  const auto* const in = static_cast<const uint8_t*>(from);
  const size_t head = (kLine - reinterpret_cast<uintptr_t>(out) % kLine) % kLine;
  std::memcpy(out, in, head);
  const size_t lines = (size - head) / kLine;
  CopyLines(out + head, in + head, lines);
  const size_t at = head + lines * kLine;
  std::memcpy(out + at, in + at, size - at);
  _mm_sfence();
}
#else
void StreamCopy(void* to, const void* from, size_t size) { std::memcpy(to, from, size); }
#endif

}  // namespace salius
