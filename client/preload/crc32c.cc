// CRC-32C for the preload library, in the place of common/crc32c_bytes.cc: that needs ISA-L, which
// a shared object in another program must not bring along.
//
// The CPU's instruction takes eight bytes in one cycle, but its result is ready after three. So
// three streams of one block run side by side; their checksums are joined by a carry-less
// multiplication: checksum(A then B) = checksum(A) * x^(8 * |B|) + checksum(B), modulo the
// polynomial. The multiplication of two reflected 32-bit values is one bit short, and the
// instruction that reduces it multiplies by x^32: hence the exponent 8 * |B| - 33 below.
#include <immintrin.h>

// The header is written for C. Clang knows no _Bool in C++.
#define _Bool bool
#include <sys/platform/x86.h>
#undef _Bool

#include <cstring>

#include "common/crc32c_bytes.h"

namespace salius {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected: bit 31 is x^0
constexpr size_t kStream = 256;               // bytes of a stream in one block

constexpr uint32_t TimesX(uint32_t value) {
  return (value & 1) != 0 ? value >> 1 ^ kPolynomial : value >> 1;
}

// Returns x^exponent modulo the polynomial.
constexpr uint32_t PowerOfX(size_t exponent) {
  uint32_t value = 1u << 31;
  for (size_t i = 0; i < exponent; ++i) value = TimesX(value);
  return value;
}

constexpr uint32_t kPastOne = PowerOfX(8 * kStream - 33);
constexpr uint32_t kPastTwo = PowerOfX(2 * 8 * kStream - 33);

struct Table {
  uint32_t of[256] = {};
  constexpr Table() {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t value = byte;
      for (int bit = 0; bit < 8; ++bit) value = TimesX(value);
      of[byte] = value;
    }
  }
};
constexpr Table kTable;

uint32_t PlainState(uint32_t state, const uint8_t* bytes, size_t size) {
  for (; size > 0; --size) state = state >> 8 ^ kTable.of[(state ^ *bytes++) & 0xFF];
  return state;
}

uint64_t WordAt(const uint8_t* bytes) {
  uint64_t word;
  memcpy(&word, bytes, sizeof(word));
  return word;
}

__attribute__((target("sse4.2,pclmul"))) uint32_t Past(uint32_t state, uint32_t power) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(state)),
                                               _mm_cvtsi32_si128(static_cast<int>(power)), 0);
  return static_cast<uint32_t>(_mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(product))));
}

__attribute__((target("sse4.2,pclmul"))) uint32_t FastState(uint32_t state, const uint8_t* bytes,
                                                            size_t size) {
  uint64_t first = state;
  for (; size >= 3 * kStream; size -= 3 * kStream, bytes += 3 * kStream) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kStream; i += 8) {
      first = _mm_crc32_u64(first, WordAt(bytes + i));
      second = _mm_crc32_u64(second, WordAt(bytes + kStream + i));
      third = _mm_crc32_u64(third, WordAt(bytes + 2 * kStream + i));
    }
    first = Past(static_cast<uint32_t>(first), kPastTwo) ^
            Past(static_cast<uint32_t>(second), kPastOne) ^ third;
  }
  for (; size >= 8; size -= 8, bytes += 8) first = _mm_crc32_u64(first, WordAt(bytes));
  auto last = static_cast<uint32_t>(first);
  for (; size > 0; --size) last = _mm_crc32_u8(last, *bytes++);
  return last;
}

}  // namespace

uint32_t Crc32cBytes(uint32_t crc, const uint8_t* bytes, size_t size) {
  // The C library knows the CPU. The compiler's runtime would ask it again at each start of a
  // program, which takes long in a virtual machine.
  const bool fast = x86_cpu_active(x86_cpu_SSE4_2) && x86_cpu_active(x86_cpu_PCLMULQDQ);
  return ~(fast ? FastState(~crc, bytes, size) : PlainState(~crc, bytes, size));
}

}  // namespace salius
