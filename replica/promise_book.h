// The promises of an acceptor, by volume, and when a primary or a recovery last called for each
// volume (rules F and J of replica/acceptor.h).
//
// pure: no thread, lock, socket or clock. Times are monotonic nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "replica/promise.h"

namespace salius {

class PromiseBook {
 public:
  struct Kept {
    Promise promise;
    int64_t life_ns = 0;  // last call of a primary or a recovery; the start for loaded promises
  };

  // Makes an empty book for at most `most` promises. One host may have `peer_share_percent` of
  // them.
  PromiseBook(size_t most, uint32_t peer_share_percent)
      : most_(most), peer_share_percent_(peer_share_percent) {}

  // Takes over the contents of the promise file.
  void Load(absl::Span<const Promise> promises, int64_t now_ns);

  // Returns the promise, all zero when there is none.
  Promise Of(const VolumeId& volume) const;
  // Returns the last call for the volume; 0 when there is no promise.
  int64_t LifeOf(const VolumeId& volume) const;
  const absl::flat_hash_map<VolumeId, Kept>& all() const { return kept_; }
  size_t size() const { return kept_.size(); }
  size_t most() const { return most_; }

  // Returns OK when one more promise fits, for `peer`. May drop one of a volume that promises
  // nothing to a recovery and for which `has_slot` is false. RESOURCE_EXHAUSTED otherwise.
  absl::Status MakeRoom(const PeerId& peer, absl::FunctionRef<bool(const VolumeId&)> has_slot);

  // Keeps the promise, in place of an earlier one for its volume.
  void Keep(const Promise& promise, int64_t life_ns) { kept_[promise.volume] = {promise, life_ns}; }
  // Forgets that a session of the volume was open. A promise to a recovery stays (F).
  void CloseSession(const VolumeId& volume, int64_t life_ns);
  void Forget(const VolumeId& volume) { kept_.erase(volume); }

  // Has the next Snapshot return the promises: they must be written.
  void Changed() { ++version_; }
  // Returns the present promises; leaves them out when `known` is their version.
  PromiseSnapshot Snapshot(uint64_t known) const;

 private:
  const size_t most_;
  const uint32_t peer_share_percent_;
  absl::flat_hash_map<VolumeId, Kept> kept_;
  uint64_t version_ = 1;
};

}  // namespace salius
