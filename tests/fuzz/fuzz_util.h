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

// Tries the bytes of a replica's file as they are, and with the right checksum: at byte 12, of all
// other bytes. `header_bytes`: fewer bytes have no checksum.
inline int TryReplicaFile(const uint8_t* data, size_t size, size_t header_bytes,
                          void (*attempt)(const std::string& bytes)) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  attempt(bytes);
  if (size < header_bytes) return 0;
  StoreU32(MutableBytes(bytes) + 12,
           Crc32cExtend(Crc32c(AsBytes(bytes).first(12)), AsBytes(bytes).subspan(16)));
  attempt(bytes);
  return 0;
}

}  // namespace salius

#endif  // SALIUS_TESTS_FUZZ_FUZZ_UTIL_H_
