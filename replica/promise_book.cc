#include "replica/promise_book.h"

#include "absl/strings/str_format.h"

namespace salius {

void PromiseBook::Load(absl::Span<const Promise> promises, int64_t now_ns) {
  for (const Promise& promise : promises) Keep(promise, now_ns);
}

Promise PromiseBook::Of(const VolumeId& volume) const {
  const auto it = kept_.find(volume);
  return it == kept_.end() ? Promise{} : it->second.promise;
}

int64_t PromiseBook::LifeOf(const VolumeId& volume) const {
  const auto it = kept_.find(volume);
  return it == kept_.end() ? 0 : it->second.life_ns;
}

absl::Status PromiseBook::MakeRoom(const PeerId& peer,
                                   absl::FunctionRef<bool(const VolumeId&)> has_slot) {
  const size_t share = most_ * peer_share_percent_ / 100;
  if (peer != PeerId{} && kept_.size() >= share) {
    size_t of_peer = 0;
    for (const auto& [id, kept] : kept_) {
      of_peer += kept.promise.peer == peer && kept.promise.promised != 0 ? 1 : 0;
    }
    if (of_peer >= share) {  // J
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%s has %d promises here, all that one host may have: `salius forget` those of volumes "
          "that are used no more",
          PeerText(peer), of_peer));
    }
  }
  if (kept_.size() < most_) return absl::OkStatus();
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    // Drop a volume whose last session was closed in order, and that no recovery asked about.
    if (it->second.promise.promised != 0 || has_slot(it->first)) continue;
    kept_.erase(it);
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrFormat("this replica keeps %d promises already, all that it can: `salius forget` "
                      "those of volumes that are used no more",
                      kept_.size()));
}

void PromiseBook::CloseSession(const VolumeId& volume, int64_t life_ns) {
  Kept& kept = kept_[volume];
  kept.life_ns = life_ns;
  kept.promise.opened = 0;
  if (kept.promise.promised == 0) kept_.erase(volume);
}

PromiseSnapshot PromiseBook::Snapshot(uint64_t known) const {
  PromiseSnapshot snapshot{version_, {}};
  if (known == version_) return snapshot;
  snapshot.promises.reserve(kept_.size());
  for (const auto& [id, kept] : kept_) {
    // Skip an entry without session and promise, and one without volume: a damaged slot left it.
    if (kept.promise.fence_epoch() == 0 || id == VolumeId{}) continue;
    snapshot.promises.push_back(kept.promise);
  }
  return snapshot;
}

}  // namespace salius
