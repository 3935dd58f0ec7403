#pragma once

#include <cstdint>

namespace salius {

// When a new record is sent. Each send takes along all records gathered before it.
enum class SendWhen : uint8_t {
  kNow,
  // A caller waits for it. It is sent at the first of these:
  // - all records sent before are durable (so records issued meanwhile go together)
  // - at once, if few records are and lately were under way (ReplicatorOptions::few)
  // - a large datagram is full
  // - the time of kLater
  kSoon,
  // No caller waits yet. It is sent when a large datagram is full, or after a millisecond (up to
  // ten when no thread is awake that looks). With ReplicatorOptions::output_triggered later:
  // OutputTriggered.
  kLater,
};

}  // namespace salius
