// Waiting in a direct volume: the words on which processes and the coordinator sleep, and which
// process receives for all.
//
// Nothing depends on a wake that comes: a process may be killed before it wakes others. So each
// sleep has a time-out, after which the sleeper looks again.
//
// Needs the standard library and POSIX only.
#pragma once

#include <cstdint>

#include "client/direct/window/layout.h"

namespace salius::direct {

// The records that became durable: (from, upto].
struct Advanced {
  Seq from = 0, upto = 0;
  bool any() const { return upto > from; }
};

// Sets the phase, with a new generation. Under the window lock; call WakeAll after unlocking.
void SetPhase(const SharedWindow& window, Phase phase);

// ---- processes
// Wakes the processes that wait for one of these records.
void Wake(const SharedWindow& window, Advanced advanced);
// Wakes every process that waits.
void WakeAll(const SharedWindow& window);
// Returns the count of news, to be read before the conditions are looked at.
uint32_t News(const SharedWindow& window);
// Sleeps until there are news of `seq` or for all after `seen`, at most `timeout_ns`. May return
// earlier.
void SleepForNews(const SharedWindow& window, uint32_t seen, Seq seq, int64_t timeout_ns);

// Asks for the coordinator's attention for `trouble` (a set of Trouble). Async-signal-safe.
void Kick(const SharedWindow& window, uint32_t trouble);

// ---- the coordinator
// Sleeps until a process kicks, at most `timeout_ns`. Returns at once if trouble is noted already.
void SleepUntilKicked(const SharedWindow& window, int64_t timeout_ns);
// Returns the set of Trouble noted since the last call.
uint32_t TakeTrouble(const SharedWindow& window);

// ---- the leader: the one process that receives acknowledgements, so that a datagram wakes one
// process only. It is an optimisation: two leaders at once do no harm.
class Leadership {
 public:
  // Becomes the leader if there is none, or if the last one gave no sign for kTakeOverNs.
  // `now`: monotonic ns.
  static Leadership Try(const SharedWindow& window, int64_t now);
  Leadership() = default;
  bool leading() const { return number_ != 0; }
  // Gives a sign. Returns false when another process took over: this one leads no more.
  bool Beat(const SharedWindow& window, int64_t now);
  // Ends it, and wakes a waiting process to lead.
  void Stop(const SharedWindow& window);

  // A receive takes up to 4 ms where the kernel's clock ticks 250 times a second, whatever the
  // socket's time-out is.
  static constexpr int64_t kTakeOverNs = 6'000'000;

 private:
  uint64_t number_ = 0;
};

}  // namespace salius::direct
