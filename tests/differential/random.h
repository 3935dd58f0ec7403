// Random numbers that a seed repeats on every machine (splitmix64).
#pragma once

#include <cstddef>
#include <cstdint>

namespace salius::differential {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31);
  }
  // Returns a number in [0, bound); `bound` is not 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  // True in `percent` of 100 cases.
  bool Chance(unsigned percent) { return Below(100) < percent; }
  // Returns one element of an array.
  template <typename T, size_t kCount>
  const T& Pick(const T (&of)[kCount]) {
    return of[Below(kCount)];
  }

 private:
  uint64_t state_;
};

}  // namespace salius::differential
