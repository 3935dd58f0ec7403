// Learns the properties of the network path to one replica: the largest datagram that gets through,
// and whether the multicast group reaches it. First transmissions can fail always, and then cost
// each record a re-send time-out:
//
// - the path is narrower than this host's link, and no router reports it (an "MTU black hole")
// - a switch does not forward the group (snooping without a querier)
//
// Re-sends go by unicast in small datagrams, so they hide the fault.
//
// A first transmission has failed when exactly one re-send of it was acknowledged. A re-send may go
// in parts, one after the other (Replicator::ResendLost). More re-sends
// mean that the path was down, which says nothing about its size. An outage counts as one failure,
// however many records it met. After kFailures without a success between them:
//
//   failure                              action
//   sent to the group, which never got   this replica gets first transmissions by unicast
//   through with this route
//   larger than the next size            the next size: the route's, then 1472, then 1232
//
// The abandoned way is tried again with one record after a minute, then after twice as long each
// time, up to an hour. A record that gets through restores it.
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

  // Forgets everything learnt: the replica is reached by another route. `datagram_bytes`: the
  // largest payload on the route as far as the kernel knows. `group`: records are sent to a group
  // there.
  void SetRoute(uint32_t datagram_bytes, bool group);

  // Returns whether the next first transmission should go to the group, if the others' do.
  bool WantsGroup(int64_t now) const { return group() || TrialDue(group_way_, now); }
  // Notes the first transmission of the records [first, last], of `bytes` with a frame's header, by
  // the group or by unicast. Returns how large a datagram to this replica may be.
  uint32_t Send(int64_t now, Seq first, Seq last, uint64_t bytes, bool by_group);
  // Notes one that another process made with datagrams of at most `datagram_bytes`. `ns`: not after
  // it was sent.
  void NoticeSent(int64_t ns, Seq first, Seq last, uint64_t bytes, uint32_t datagram_bytes);
  void Resent(int64_t now, Seq first, Seq last);
  // Notes that the replica holds everything up to `contiguous`. Returns whether a size or the group
  // was given up or restored.
  bool Acked(int64_t now, Seq contiguous);

  // Return the largest datagram of first transmissions now, and the largest on the route.
  uint32_t datagram_bytes() const { return sizes_[size_.level]; }
  // Returns the size for the next transmission by another process: the next larger one while a trial
  // is due.
  uint32_t NextDatagramBytes(int64_t now) const {
    return sizes_[static_cast<size_t>(TrialDue(size_, now) ? size_.level - 1 : size_.level)];
  }
  uint32_t route_bytes() const { return sizes_.front(); }
  bool group_unheard() const { return group_ && group_way_.given_up; }
  bool group() const { return group_ && !group_way_.given_up; }

 private:
  static constexpr size_t kSends = 64;  // remembered at most; the oldest are forgotten

  // A property that may fail always: the group, or the size.
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
    Seq resent_upto = 0;  // by the last re-send
    int64_t resent_ns = -1;
    bool tries_group = false, tries_size = false;
  };

  bool TrialDue(const Tried& tried, int64_t now) const {
    return tried.given_up && !tried.trial_under_way && now >= tried.trial_at_ns;
  }
  void Remember(int64_t now, const Sent& sent);
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
