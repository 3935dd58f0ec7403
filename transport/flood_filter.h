// A program for the kernel (classic BPF, SO_ATTACH_FILTER in socket(7)) that drops datagrams which
// an end with sealed datagrams would refuse: most of a flood, without a wake-up, a copy or a
// computation of a tag. It accepts nothing: a datagram that passes is opened as without it.
//
//   datagram                                                passes
//   empty, from the socket's own port (it wakes itself)     always
//   sealed, key and sender known, counter in the window     always
//   sealed, key or sender unknown, or counter far ahead     1 of kDoubtfulPasses
//   notice for a key that seals here, if notices are wanted always
//   plain frame                                             always if allowed, else as below
//   all others                                              1 of kBadPasses
//
// The rules are of the moment when the program is made. Later a sender may be far ahead, or have
// moved a window: the ones that pass by chance, and new programs, follow it.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <linux/filter.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace salius {

struct FloodRules {
  // A sender under a key for opening.
  struct Sender {
    uint32_t key_id = 0;
    uint32_t sender = 0;  // 0: any
    bool counts = false;  // a counter of it was received
    uint64_t oldest = 0;  // if so: counters before this one are refused as too old
  };
  // The most senders, and the most notices. With more the program would be long: make one for any key instead.
  static constexpr size_t kMostSenders = 64;

  std::vector<Sender> senders;
  bool any_key = false;           // sealed datagrams of every key pass
  bool plain = false;             // plain frames pass
  std::vector<uint32_t> notices;  // key ids of the notices that pass
};

// One datagram of as many passes by chance: enough that a sender with another key, or far ahead, is
// heard within some tens of datagrams, and few enough to cost little. Powers of 2.
inline constexpr uint32_t kDoubtfulPasses = 64;
inline constexpr uint32_t kBadPasses = 1024;
// Counters from `oldest` on that pass: those of seconds, at a million datagrams a second.
inline constexpr uint32_t kFilterSpan = uint32_t{1} << 22;

// Returns the program for a UDP socket.
std::vector<sock_filter> FloodProgram(const FloodRules& rules);

}  // namespace salius
