// The counters of one sender under one key that were received already: a datagram counts once. It
// has the counters of the last kCounters, and refuses all before them. The window of RFC 4303,
// section 3.4.3.
//
// A receiver asks Check before it verifies a datagram's tag, which is dear, and calls Take after
// that: a forged counter must not move the window.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace salius {

class ReplayWindow {
 public:
  // A sender's threads reserve counters and send later: a thread that is delayed by 5 ms at 500,000
  // datagrams a second is overtaken by 2,500.
  static constexpr uint64_t kCounters = 4096;

  enum class Verdict : uint8_t {
    kNew,
    kSeen,    // received before
    kTooOld,  // before the window: not known
  };
  Verdict Check(uint64_t counter) const {
    if (counter > newest_) return Verdict::kNew;
    if (newest_ - counter >= kCounters) return Verdict::kTooOld;
    return Bit(counter) ? Verdict::kSeen : Verdict::kNew;
  }

  // Takes a counter that is new.
  void Take(uint64_t counter) {
    if (counter > newest_) {
      const uint64_t first = newest_ + 1;
      if (counter - newest_ >= kCounters) {
        seen_.fill(0);
      } else {
        for (uint64_t skipped = first; skipped <= counter; ++skipped) Word(skipped) &= ~Mask(skipped);
      }
      newest_ = counter;
    }
    Word(counter) |= Mask(counter);
  }

  uint64_t newest() const { return newest_; }  // 0: none was received

 private:
  static constexpr uint64_t Mask(uint64_t counter) { return uint64_t{1} << (counter % 64); }
  uint64_t& Word(uint64_t counter) { return seen_[counter / 64 % seen_.size()]; }
  bool Bit(uint64_t counter) const {
    return (seen_[counter / 64 % seen_.size()] & Mask(counter)) != 0;
  }

  uint64_t newest_ = 0;
  std::array<uint64_t, kCounters / 64> seen_{};  // a ring by counter
};

}  // namespace salius
