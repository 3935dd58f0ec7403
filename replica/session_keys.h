// The keys of the sessions of this process, by volume: each record key that a primary gave, and the
// acknowledgement key that was made for it. They are in the memory of the process only. So a
// process that starts has no keys, and an acknowledgement key names one start of one process.
//
// A session may have several keys at a time, because a primary changes its key without a pause: it
// gives the next one while datagrams under the present one are on their way.
//
// Threads: thread safe. The lock is held over calls of the key ring and of DropUnless's `keep`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "proto/sealed_frame.h"
#include "transport/key_ring.h"
#include "transport/sealer.h"

namespace salius {

class SessionKeys {
 public:
  // Keys of one session: the present one, the next one, and one more, because a primary offers
  // another next one when a replica refuses its id.
  static constexpr size_t kMostKeys = 3;

  // The channels of the replica use `ring`, which outlives this.
  explicit SessionKeys(KeyRing& ring) : ring_(ring) {}

  struct Offer {
    FrameSession session;
    uint32_t key_id = 0;
    SealKey record_key{};
    uint32_t ack_sender = 0;  // of this replica's acknowledgements
  };
  // Takes a key of a session that is open. Returns the key for its acknowledgements: the same one
  // for the same offer. Keys of an earlier session of the volume are forgotten. Errors:
  // INVALID_ARGUMENT for zero ids, ALREADY_EXISTS when the key id has another key or session,
  // ABORTED when a later session of the volume has keys.
  absl::StatusOr<SealKey> Take(const Offer& offer);

  // Takes a session without keys: its plain frames are accepted. ABORTED as of Take.
  absl::Status TakePlain(const FrameSession& session);

  // Forgets the volume's keys.
  void Drop(const VolumeId& volume);
  // Forgets the keys of all volumes for which `keep` returns false.
  void DropUnless(const std::function<bool(const VolumeId&)>& keep);
  size_t volumes() const;

 private:
  struct Key {
    Offer offer;
    SealKey ack_key;
  };
  struct Volume {
    FrameSession session;
    std::deque<Key> keys;  // the newest last
  };
  // Makes `session` the one of its volume. Forgets the keys of the one before.
  absl::StatusOr<Volume*> Begin(const FrameSession& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(const Volume& volume);

  KeyRing& ring_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<VolumeId, Volume> volumes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace salius
