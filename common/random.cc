#include "common/random.h"

#include <errno.h>
#include <sys/random.h>

#include <bit>

#include "common/check.h"

namespace salius {

void SecureRandomBytes(void* out, size_t size) {
  auto* cursor = static_cast<unsigned char*>(out);
  while (size > 0) {
    const ssize_t got = getrandom(cursor, size, 0);
    if (got < 0 && errno == EINTR) continue;
    SALIUS_CHECK(got > 0, "getrandom");
    cursor += got;
    size -= static_cast<size_t>(got);
  }
}

uint64_t SecureRandom64() {
  uint64_t value;
  SecureRandomBytes(&value, sizeof(value));
  return value;
}

Random::Random(uint64_t seed) {
  for (uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15;
    uint64_t z = seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    word = z ^ (z >> 31);
  }
}

uint64_t Random::Next() {
  const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

uint64_t Random::Below(uint64_t n) {
  SALIUS_CHECK(n != 0, "Below(0)");
  // Values below 2^64 mod n would make the small results more likely; draw again.
  const uint64_t threshold = -n % n;
  uint64_t value;
  do {
    value = Next();
  } while (value < threshold);
  return value % n;
}

int64_t Random::Between(int64_t low, int64_t high) {
  SALIUS_CHECK(low <= high);
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const uint64_t offset = span == UINT64_MAX ? Next() : Below(span + 1);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + offset);
}

bool Random::Chance(double probability) {
  if (probability <= 0) return false;
  // A double holds 53 bits exactly.
  return static_cast<double>(Next() >> 11) * 0x1.0p-53 < probability;
}

}  // namespace salius
