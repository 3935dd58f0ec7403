// Helpers that the fuzzers share. A property that does not hold aborts (SALIUS_CHECK), which
// libFuzzer reports as a crash with its input.
#ifndef SALIUS_TESTS_FUZZ_FUZZ_UTIL_H_
#define SALIUS_TESTS_FUZZ_FUZZ_UTIL_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "common/bytes.h"
#include "common/crc32c.h"

namespace salius {

inline uint8_t* MutableBytes(std::string& bytes) {
  return reinterpret_cast<uint8_t*>(bytes.data());
}

// Writes the checksum of the first `at` bytes behind them, so that a fuzzer gets past the check:
// chance never finds a checksum. Does nothing when the bytes are too few.
inline void SealCrc(std::string& bytes, size_t at) {
  if (bytes.size() < at + 4) return;
  StoreU32(MutableBytes(bytes) + at, Crc32c(AsBytes(bytes).first(at)));
}

}  // namespace salius

#endif  // SALIUS_TESTS_FUZZ_FUZZ_UTIL_H_
