// The keys of a session's datagrams at the primary: the present record key, the next one while the
// key changes, and which replica has which.
//
// A key changes without a pause: each replica with an open session is given the next key and
// answers with its acknowledgement key for it; only when all have it, it becomes the present one.
// The key before stays for the acknowledgements under way, until the next change begins.
//
// Threads: one at a time; the caller's lock guards it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "client/session/window.h"
#include "common/limits.h"
#include "proto/sealed_frame.h"
#include "transport/key_ring.h"
#include "transport/sealer.h"

namespace salius {

// A record key, as one replica is given it.
struct KeyOffer {
  uint32_t key_id = 0;
  SealKey record_key{};
  uint32_t ack_sender = 0;  // of the replica's acknowledgements
  bool required = true;     // a replica that takes no key is refused
};

// The keys of a session that can be in use now, for processes that seal and open beside this one.
struct KeysInUse {
  struct AckKey {
    int replica = 0;
    uint32_t key_id = 0;  // of its record key
    SealKey key{};
  };
  uint32_t record_key_id = 0;
  SealKey record_key{};
  std::vector<AckKey> ack_keys;
};

class OfferedKeys {
 public:
  // The sender id of the primary's own datagrams. Processes of a direct volume have larger ones.
  static constexpr uint32_t kPrimarySender = 1;

  // Returns the sender id of a replica's acknowledgements.
  static constexpr uint32_t AckSender(int replica) { return static_cast<uint32_t>(replica) + 1; }

  // `ring`: of the session's channel; it outlives this.
  explicit OfferedKeys(KeyRing& ring) : ring_(ring) {}

  // Makes the first key. Nothing but begun() may be called before.
  void Begin(const FrameSession& session);
  bool begun() const { return present_.id != 0; }

  // Returns the key with which a session is opened at `replica`. Its earlier keys are forgotten, and
  // that it took none.
  KeyOffer ForOpening(int replica);
  // Returns the first key that `replica` lacks.
  std::optional<KeyOffer> Next(int replica) const;
  // Takes the answer to an offer: opens the replica's acknowledgements with `ack_key` from now on,
  // and with no earlier key of the same id. An answer about a key that was replaced meanwhile is
  // ignored: Next offers the present one.
  void Took(int replica, const KeyOffer& offer, const SealKey& ack_key);
  // Takes notice that the replica's process has no keys.
  void Lost(int replica);
  // Takes notice that the replica, whose session is open, takes no keys: it gets none, and plain
  // acknowledgements are opened until no such replica is left.
  void SealsNothing(int replica);
  // Returns the replicas of SealsNothing.
  ReplicaMask plain() const { return plain_; }
  // Takes notice that a replica has another key of that id: the key changes.
  void Refused(const KeyOffer& offer);

  // Begins to change the key, unless it is being changed.
  void StartChange();
  // Does so when the present key has been in use for `interval_ns` (0: never), counted from the first
  // call that finds it. So acknowledgements under the key before count for as long. Call it often.
  // Returns whether a change began.
  bool ChangeWhenDue(int64_t now_ns, int64_t interval_ns);
  bool changing() const { return next_.id != 0; }
  // Ends the change if each of `connected` has the next key: it seals from now on. Returns whether
  // it did.
  bool Advance(ReplicaMask connected);
  // Returns the present record key, and the replicas' keys for it, the next one and the one before.
  KeysInUse InUse() const;
  // Returns how often the key was changed.
  uint64_t changes() const { return changes_; }

 private:
  struct Key {
    uint32_t id = 0;  // 0: none
    SealKey record_key{};
    ReplicaMask has = 0;  // the replicas that have it
    ReplicaMask answered = 0;  // those that gave the keys of their acknowledgements
    std::array<SealKey, kMaxReplicas> ack_keys{};
  };
  Key NewKey();
  static KeyOffer OfferOf(const Key& key, int replica) {
    return {key.id, key.record_key, AckSender(replica)};
  }

  KeyRing& ring_;
  FrameSession session_;
  Key present_, next_, retired_;  // retired_: the one before the present one
  ReplicaMask plain_ = 0;
  uint64_t changes_ = 0;
  // Since when the present key is in use, and the number of changes until then.
  int64_t since_ns_ = 0;
  uint64_t changes_until_ = 0;
};

}  // namespace salius
