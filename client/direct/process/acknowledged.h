// Waiting in one process until a record is durable: it sends what is complete, receives for all
// processes if none does, else sleeps.
//
// Needs the standard library, POSIX and ISA-L only.
#pragma once

#include <cstdint>

#include "client/direct/window/layout.h"
#include "client/direct/window/waits.h"

namespace salius::direct {

enum class Waited : uint8_t {
  kDurable,  // the record is durable
  kChanged,  // phase or generation changed first
  kDead,     // the coordinator died first
};

class Acknowledged {
 public:
  Acknowledged() = default;
  // `socket`: the datagram socket of all processes, with a receive time-out of about a millisecond.
  // `cpus`: of this process. With several, a receiver may spin for a short time before it sleeps.
  Acknowledged(const SharedWindow& window, int socket, uint32_t cpus)
      : window_(window), socket_(socket), cpus_(cpus) {}

  // Waits until the record is durable, while the phase word is `phase`.
  Waited Wait(Seq seq, PhaseWord phase) const;
  // Waits until the phase word is no longer `phase`, or `done(window)` holds. Sends and receives
  // nothing. Returns false when the coordinator died.
  bool WaitForNews(PhaseWord phase, bool (*done)(const SharedWindow&, uint64_t),
                   uint64_t what) const;
  // Returns whether the coordinator lives.
  bool CoordinatorLives() const;
  // Sends the records that are complete and unclaimed.
  void SendReady() const;
  // Receives acknowledgements: waits for the first one as long as the socket does, unless `wait` is
  // false. Returns the number of datagrams.
  int Receive(bool wait) const;

 private:
  void SpinOrReceive() const;

  SharedWindow window_;
  int socket_ = -1;
  uint32_t cpus_ = 1;
};

}  // namespace salius::direct
