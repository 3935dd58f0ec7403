// The ends of sealed datagrams in a simulation: the shipping key ring with the keys of a primary or
// of a replica's process, as transport/sealed_channel.h uses it on sockets.
//
// SealJudge knows every datagram that an honest end sealed. So it finds what the other judgements
// of a lifetime may not show:
//
// - a nonce that is used twice under one key
// - a datagram that is accepted though no honest end sealed it
// - a datagram that one process accepts twice
// - a datagram that is accepted under a key of an earlier session
//
// The keys are random for each run, but no event depends on their bits.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session/offered_keys.h"
#include "proto/sealed_frame.h"
#include "replica/rate_limiter.h"
#include "replica/session_keys.h"
#include "transport/key_ring.h"
#include "transport/sealer.h"

namespace salius::sim {

class SealJudge {
 public:
  // Notes that an honest end sealed this datagram with `key`.
  void Sealed(const SealKey& key, std::string_view datagram);
  // Notes that an end accepted this datagram, whose frame names `epoch`. `accepted`: the datagrams
  // that its process accepted before.
  void Accepted(std::string_view datagram, Epoch epoch, Epoch newest,
                std::unordered_set<size_t>& accepted);
  // Returns the first thing that must not happen; empty when there is none.
  const std::string& broken() const { return broken_; }

 private:
  void Break(const char* what) {
    if (broken_.empty()) broken_ = what;
  }

  std::unordered_set<size_t> sealed_, nonces_;  // hashes
  std::string broken_;
};

// One process's end.
class SealedEnd {
 public:
  explicit SealedEnd(SealJudge& judge) : judge_(judge) {}

  KeyRing& ring() { return ring_; }
  // Notes a key with which this end seals, and its session.
  void NoteKey(uint32_t key_id, const SealKey& key, Epoch epoch);
  // Returns the sealed datagram of a frame, under the key of this id (0: the present one); empty
  // when there is no such key.
  std::string Seal(uint32_t key_id, std::string_view frame);
  // As KeyRing::Open. A frame lies in `datagram`.
  SealRefusal Open(std::string& datagram, KeyRing::Opened* opened);

 private:
  SealJudge& judge_;
  KeyRing ring_;
  std::map<uint32_t, SealKey> keys_;
  Epoch newest_ = 0;
  std::unordered_set<size_t> accepted_;  // hashes
};

// The keys of one process of a replica.
class ReplicaSeal {
 public:
  // `plain_too`: as on one host without keys, plain frames are opened too, and the acceptor refuses
  // those of sealed sessions.
  ReplicaSeal(SealJudge& judge, bool plain_too) : end_(judge) {
    if (plain_too) end_.ring().AllowAllPlain();
  }

  // As SessionKeys.
  absl::StatusOr<SealKey> Take(const FrameSession& session, const KeyOffer& offer);
  void Drop(const VolumeId& volume) { keys_.Drop(volume); }

  struct Arrived {
    std::string frame;    // empty: refused
    std::string notice;   // to be sent back; empty: none
    uint32_t key_id = 0;  // 0: it came plain
  };
  // Opens a datagram that arrives at `now` of the replica's clock.
  Arrived Open(int64_t now, std::string_view datagram);
  // Returns the datagram of an answer to one under the key of this id.
  std::string Seal(uint32_t key_id, std::string frame) {
    return key_id == 0 ? frame : end_.Seal(key_id, frame);
  }

 private:
  SealedEnd end_;
  SessionKeys keys_{end_.ring()};
  RateLimiter notices_{10'000'000, 1};  // as replica/server.cc
};

// The keys of a primary's session, and the replicas that lack one: client/session/replica_keys.cc
// with simulated calls.
class PrimarySeal {
 public:
  // `rotation_ns`: the interval of key changes; 0: none.
  PrimarySeal(SealJudge& judge, size_t replicas, int64_t rotation_ns)
      : end_(judge), peers_(replicas), rotation_ns_(rotation_ns) {}

  // Returns the datagram of a frame; empty before the first session was opened.
  std::string Seal(std::string_view frame) { return keys_.begun() ? end_.Seal(0, frame) : ""; }
  // Returns the frame of a replica's acknowledgement that arrives at `now`; empty: refused, or a
  // notice.
  std::string Open(int64_t now, int replica, std::string datagram);

  // Returns the key with which the session is opened at a replica.
  KeyOffer ForOpening(int replica, const FrameSession& session);
  // Returns a key that a replica, whose session is open, lacks.
  std::optional<KeyOffer> Next(int64_t now, int replica);
  // Takes the answers of replicas.
  void Took(int64_t now, int replica, const KeyOffer& offer, const SealKey& ack_key,
            ReplicaMask connected);
  void Refused(const KeyOffer& offer) { keys_.Refused(offer); }
  // Changes the key when that is due. Returns the replicas that are to be given a key now.
  ReplicaMask Refresh(int64_t now, ReplicaMask connected);
  uint64_t changes() const { return keys_.changes(); }

  // Whether a control call to a replica is under way: they come one after the other.
  bool calling(int replica) const { return peers_[replica].calling; }
  void SetCalling(int replica, bool calling) { peers_[replica].calling = calling; }

 private:
  struct Peer {
    bool wanted = false, calling = false;
    int64_t given_ns = 0, tried_ns = 0;
  };
  KeyOffer Noted(const KeyOffer& offer);

  SealedEnd end_;
  OfferedKeys keys_{end_.ring()};
  FrameSession session_;
  std::vector<Peer> peers_;
  const int64_t rotation_ns_;
  int64_t change_at_ns_ = 0;
};

}  // namespace salius::sim
