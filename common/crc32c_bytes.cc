#include "common/crc32c_bytes.h"

#include <isa-l/crc.h>

#include <algorithm>

#ifdef __x86_64__
// One of ISA-L's own variants behind crc32_iscsi(), with SSE 4.2 and PCLMULQDQ. The library exports
// it, but its header does not name it.
extern "C" unsigned int crc32_iscsi_01(unsigned char* bytes, int size, unsigned int state);
#endif

namespace salius {
namespace {

using Function = unsigned int (*)(unsigned char* bytes, int size, unsigned int state);

// crc32_iscsi() itself takes AVX-512 where the CPU has it. That is twice as fast in a loop. But a
// little of it between two system calls costs more than it saves, and on Intel's CPUs more of it
// does, too (docs/history/performance.md).
constexpr size_t kWideBytes = 16 << 10;

// These two read a word that the compiler.s runtime sets at start: a few instructions.
Function FastestForFew() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) return crc32_iscsi_01;
#endif
  return crc32_iscsi;
}

Function FastestForMany() {
#ifdef __x86_64__
  if (__builtin_cpu_is("amd")) return crc32_iscsi;
#endif
  return FastestForFew();
}

}  // namespace

uint32_t Crc32cBytes(uint32_t crc, const uint8_t* bytes, size_t size) {
  const Function function = size < kWideBytes ? FastestForFew() : FastestForMany();
  // ISA-L takes the register's inner value (complemented) and the length as an int.
  constexpr size_t kMaxChunk = size_t{1} << 30;
  uint32_t state = ~crc;
  while (size > 0) {
    const size_t n = std::min(size, kMaxChunk);
    // Its first argument is not const, but is only read.
    state = function(const_cast<unsigned char*>(bytes), static_cast<int>(n), state);
    bytes += n;
    size -= n;
  }
  return ~state;
}

}  // namespace salius
