// The rounds of a coordinator's policy thread: after each sleep it gives the policy the processes'
// acknowledgements, fills holes, sends what no process sends, passes stripes, and takes the
// processes' requests.
//
// No thread, socket or clock of its own: a simulator drives it as the coordinator does
// (tests/sim/direct_coordinator.h). It takes the window lock and stripes, so the caller holds none.
#pragma once

#include <array>
#include <cstdint>

#include "client/direct/coordinator/stripe_pass.h"
#include "client/direct/window/layout.h"
#include "client/session/session_core.h"
#include "common/limits.h"

namespace salius::direct {

class PolicyRound {
 public:
  // The session around the rounds.
  class Session {
   public:
    virtual ~Session() = default;
    // Feeds the session core at `now` (monotonic ns, not in the future), and does what follows.
    virtual void Feed(int64_t now, const Input& input) = 0;
    // Returns whether Work::pass_stripes was set since the last call.
    virtual bool TakeStripesWanted() = 0;
    // Returns the datagram socket of all processes; -1: there is no replica.
    virtual int socket() const = 0;
  };

  PolicyRound(const SharedWindow& window, Session& session)
      : window_(window), session_(session), stripes_(window) {}

  // Does one round. `trouble`: of TakeTrouble, before the datagrams were received.
  void Run(uint32_t trouble);
  // Returns how long the thread may sleep now (ns), when the policy's next tick is due at
  // `next_tick` and `stripes_wanted` says that a pass of the stripes begins.
  int64_t SleepNs(int64_t now, int64_t next_tick, bool stripes_wanted) const;
  // Returns whether a process receives for all: a datagram taken away from it leaves it asleep.
  static bool IsLed(const SharedWindow& window, int64_t now);

 private:
  // Gives the policy the newest acknowledgements, so that none is late for its timers.
  void FeedMail(int64_t now);
  void FeedOne(int replica, const Mail& mail, int64_t now);
  // Makes void records of holes, and sends the records that no process sends.
  void SendLeftovers(uint32_t trouble, int64_t now);
  void PassStripes(int64_t now);
  void TakeRequests(uint32_t trouble, int64_t now);

  const SharedWindow window_;
  Session& session_;
  StripePass stripes_;
  std::array<std::array<uint64_t, 2>, kMaxReplicas> mails_{};  // fed so far: good, odd
  int64_t unsent_since_ns_ = -1;
  int64_t owed_since_ns_ = -1;
  bool passing_ = false;
};

}  // namespace salius::direct
