// The callers that wait until their records are durable, and which of them receives
// acknowledgements. At most one thread, the leader, receives them for all, so that a datagram wakes
// one thread only.
//
//     WaitDurable(seq)                          WhenDurable(seq, callback)
//            |                                          | Add
//            +---- TryLead: true ----+----- true -------+
//            |                       v                  |
//            | false              LEADER                | false
//            v        receives until its own seq is     v
//        FOLLOWER     durable; after WhenDurable,    returns: another thread
//        sleeps       until no callback waits        calls the callback
//            |                       |
//            | StopFollowing         | StopLeading names its successor:
//            |                       |   a follower, which is woken and tries to lead
//            v                       |   the io thread, if only callbacks wait
//         returns, or                |   none
//         tries to lead              v
//                                 returns
//
// A follower that returns although a leader counted on it hands over to the io thread as well.
//
// pure: no thread, lock, socket or clock. The caller serialises all calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/session/record_stream.h"
#include "common/ids.h"

namespace salius {

class Waiters {
 public:
  struct Callback {
    Seq seq = 0;
    DurableCallback done;
  };
  enum class Successor : uint8_t { kNone, kFollower, kIoThread };

  // `cpus`: of this host.
  explicit Waiters(int64_t cpus) : cpus_(cpus) {}

  // ---- callbacks
  void Add(Seq seq, DurableCallback done);
  bool HasCallbacks() const { return !callbacks_.empty(); }
  // Move the callbacks up to `durable`, or all, to `to`: the lowest seq first.
  void TakeUpTo(Seq durable, std::vector<Callback>& to);
  void TakeAll(std::vector<Callback>& to);

  // ---- leader and followers
  // Counts a caller that begins to wait. Makes it the leader and returns true, unless there is a
  // leader or `acks_count` is false: then there is nothing to receive.
  bool TryLead(bool acks_count);
  // Ends the leader's part. Returns the thread that must be woken to receive next.
  Successor StopLeading();
  void StartFollowing() { ++followers_; }
  // Ends a follower's sleep. `leaves`: it waits no more. Returns kIoThread when a leader had counted
  // on it and only callbacks wait now.
  Successor StopFollowing(bool leaves);

  bool HasLeader() const { return leader_; }
  // Returns whether there is a leader, or was one since the last call.
  bool TakeLeaderSeen();
  bool HasFollowers() const { return followers_ > 0; }
  // Returns whether lately more callers waited than there are CPUs.
  bool Many() const { return waiting_64ths_ > cpus_ * 64; }

 private:
  // Orders the heap: the lowest seq is at its front.
  static bool Later(const Callback& a, const Callback& b) { return a.seq > b.seq; }
  void TakeFirst(std::vector<Callback>& to);

  const int64_t cpus_;
  std::vector<Callback> callbacks_;  // a heap
  int followers_ = 0;
  bool leader_ = false;
  bool leader_seen_ = false;
  int64_t waiting_64ths_ = 0;  // the number of waiting callers, smoothed, in 64ths
};

}  // namespace salius
