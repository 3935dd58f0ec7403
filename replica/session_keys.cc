#include "replica/session_keys.h"

#include "absl/strings/str_format.h"
#include "common/check.h"

namespace salius {

absl::StatusOr<SessionKeys::Volume*> SessionKeys::Begin(const FrameSession& session) {
  Volume& volume = volumes_[session.volume];
  if (volume.session == session) return &volume;
  if (session.epoch < volume.session.epoch) {
    return absl::AbortedError(
        absl::StrFormat("a session of epoch %d has keys here", volume.session.epoch));
  }
  Forget(volume);
  volume = {session, {}};
  return &volume;
}

absl::Status SessionKeys::TakePlain(const FrameSession& session) {
  absl::MutexLock lock(&mutex_);
  SALIUS_ASSIGN_OR_RETURN(Volume* const volume, Begin(session));
  // A session that is sealed stays so.
  if (volume->keys.empty()) ring_.AllowPlain(session);
  return absl::OkStatus();
}

absl::StatusOr<SealKey> SessionKeys::Take(const Offer& offer) {
  if (offer.key_id == 0 || offer.ack_sender == 0) {
    return absl::InvalidArgumentError("key id and sender must not be zero");
  }
  absl::MutexLock lock(&mutex_);
  SALIUS_ASSIGN_OR_RETURN(Volume* const found, Begin(offer.session));
  Volume& volume = *found;
  for (const Key& key : volume.keys) {
    if (key.offer.key_id != offer.key_id) continue;
    if (key.offer.record_key == offer.record_key && key.offer.ack_sender == offer.ack_sender) {
      return key.ack_key;
    }
    return absl::AlreadyExistsError(absl::StrFormat("key id %08x has another key", offer.key_id));
  }
  SALIUS_RETURN_IF_ERROR(
      ring_.AddOpening(offer.key_id, KeyRing::kAnySender, offer.record_key, offer.session));
  ring_.ForbidPlain(offer.session);
  const SealKey ack_key = NewSealKey();
  ring_.AddSealing(offer.key_id, offer.ack_sender, ack_key);
  volume.keys.push_back({offer, ack_key});
  if (volume.keys.size() > kMostKeys) {
    ring_.Remove(volume.keys.front().offer.key_id);
    volume.keys.pop_front();
  }
  return ack_key;
}

void SessionKeys::Forget(const Volume& volume) {
  ring_.ForbidPlain(volume.session);
  for (const Key& key : volume.keys) ring_.Remove(key.offer.key_id);
}

void SessionKeys::Drop(const VolumeId& volume) {
  absl::MutexLock lock(&mutex_);
  const auto found = volumes_.find(volume);
  if (found == volumes_.end()) return;
  Forget(found->second);
  volumes_.erase(found);
}

void SessionKeys::DropUnless(const std::function<bool(const VolumeId&)>& keep) {
  absl::MutexLock lock(&mutex_);
  absl::erase_if(volumes_, [&](const auto& entry) {
    if (keep(entry.first)) return false;
    Forget(entry.second);
    return true;
  });
}

size_t SessionKeys::volumes() const {
  absl::MutexLock lock(&mutex_);
  return volumes_.size();
}

}  // namespace salius
