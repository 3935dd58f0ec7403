#pragma once

#include <cstdint>

namespace salius {

// When a new record is sent. Whatever is sent takes all that is gathered before it along.
enum class SendWhen : uint8_t {
  kNow,
  // Somebody waits for it: when all that was sent is durable, so that what is issued meanwhile goes
  // together; at once when it already is, while few records are, and
  // lately were, under way (ReplicatorOptions::few), or when a large datagram is full; at the
  // latest as kLater.
  kSoon,
  // Nobody waits yet: when a large datagram is full, or after a millisecond (up to ten when no
  // thread is awake that looks).
  kLater,
};

}  // namespace salius
