// Randomness of two kinds: from the kernel, for identities and tokens; and from a seed, for tests,
// simulation and jitter. The same seed always gives the same numbers.
#ifndef SALIUS_COMMON_RANDOM_H_
#define SALIUS_COMMON_RANDOM_H_

#include <cstddef>
#include <cstdint>

namespace salius {

// Fills `size` bytes at `out` from getrandom(2). Cannot fail: a kernel without it aborts.
void SecureRandomBytes(void* out, size_t size);

// Returns 64 bits from getrandom(2).
uint64_t SecureRandom64();

// xoshiro256**, seeded by SplitMix64. Not for secrets, not thread-safe. It is a
// UniformRandomBitGenerator, so that std::shuffle and the like take it. The distributions of
// <random> differ between libraries, so use Below() and Chance() where a seed must repeat.
class Random {
 public:
  using result_type = uint64_t;

  explicit Random(uint64_t seed);

  // Returns 64 random bits.
  uint64_t Next();

  // Returns a uniform number in [0, n); n must not be 0.
  uint64_t Below(uint64_t n);

  // Returns a uniform number in [low, high], both included; low must not exceed high.
  int64_t Between(int64_t low, int64_t high);

  // Returns true with the given probability; never at 0 or less, always at 1 or more.
  bool Chance(double probability);

  uint64_t operator()() { return Next(); }
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return UINT64_MAX; }

 private:
  uint64_t state_[4];
};

}  // namespace salius

#endif  // SALIUS_COMMON_RANDOM_H_
