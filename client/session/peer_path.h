// What is learnt of the way to one replica: the largest datagram that gets through, and whether
// the multicast group reaches it. A first transmission that always fails costs each record a
// re-send time-out for ever: where the way is narrower than this host's cable and no router says so
// (an "MTU black hole"), or where a switch passes the group on to nobody (snooping without a
// querier). Re-sends go by unicast in small datagrams, so they hide the fault.
//
// A first transmission has failed when exactly one re-send of it was acknowledged; more of them
// say that the way was down, which says nothing of its size. An outage counts as one failure,
// however many records it met. After kFailures without a success between them:
//
//   what failed                          what is done
//   sent to the group, which never got   this replica gets first transmissions by unicast
//   through with this route
//   larger than the next size            the next size: the route's, then 1472, then 1232
//
// The abandoned way is tried again with one record after a minute, then after twice as long each
// time, up to an hour. One that gets through restores it.
//
// pure: no thread, lock, socket or clock. Times are monotonic ns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace salius {

class PeerPath {
 public:
  static constexpr int kFailures = 8;
  static constexpr int64_t kFirstTrialNs = 60'000'000'000;
  static constexpr int64_t kLongestTrialNs = 3'600'000'000'000;

  // The replica is reached by another route: everything is learnt anew. `datagram_bytes`: what the
  // route carries as far as the kernel knows. `group`: records are sent to a group there.
  void SetRoute(uint32_t datagram_bytes, bool group);

  // Whether the next first transmission should go to the group, if the others' do.
  bool WantsGroup(int64_t now) const { return group() || TrialDue(group_way_, now); }
  // The records [first, last], of `bytes` in all with a frame's header, go for the first time, by the group or not.
  // Returns how large a datagram to this replica may be.
  uint32_t Send(int64_t now, Seq first, Seq last, uint64_t bytes, bool by_group);
  void Resent(int64_t now, Seq first, Seq last);
  // Everything up to `contiguous` is held. Returns whether something was learnt: a size or the
  // group given up, or restored.
  bool Acked(int64_t now, Seq contiguous);

  // Largest datagram of first transmissions now, and what the route would carry.
  uint32_t datagram_bytes() const { return sizes_[size_.level]; }
  uint32_t route_bytes() const { return sizes_.front(); }
  bool group_unheard() const { return group_ && group_way_.given_up; }
  bool group() const { return group_ && !group_way_.given_up; }

 private:
  static constexpr size_t kSends = 64;  // remembered at most; the oldest make room

  // One thing that may fail always: the group, or the size.
  struct Tried {
    bool given_up = false;
    bool proven = false;  // it got through since the route was set
    int level = 0;        // of sizes_; of the size only
    int failures = 0;
    int64_t failed_ns = 0;  // when the last one was seen
    int64_t trial_at_ns = 0, trial_after_ns = 0;
    bool trial_under_way = false;
  };
  struct Sent {
    Seq first = 0, last = 0;
    int64_t ns = 0;
    bool group = false;
    int level = -1;  // of sizes_, when it was larger than the next one; else -1
    int resent = 0;
    int64_t resent_ns = -1;
    bool tries_group = false, tries_size = false;
  };

  bool TrialDue(const Tried& tried, int64_t now) const {
    return tried.given_up && !tried.trial_under_way && now >= tried.trial_at_ns;
  }
  void Judge(int64_t now, const Sent& sent);
  void EndTrial(int64_t now, Tried& tried, bool success);
  static void Succeed(Tried& tried);
  static void Fail(int64_t now, const Sent& sent, Tried& tried);
  void GiveUp(int64_t now, Tried& tried);

  std::vector<uint32_t> sizes_{0};  // descending; the first is the route's
  bool group_ = false;
  Tried group_way_, size_;
  std::array<Sent, kSends> sends_{};  // a ring
  size_t oldest_ = 0, count_ = 0;
  bool learnt_ = false;
};

}  // namespace salius
