#include "client/session/offered_keys.h"

#include <utility>

#include "common/check.h"
#include "common/random.h"

namespace salius {

OfferedKeys::Key OfferedKeys::NewKey() {
  Key key;
  do {
    key.id = static_cast<uint32_t>(SecureRandom64());
  } while (key.id == 0 || key.id == present_.id || key.id == next_.id || key.id == retired_.id);
  key.record_key = NewSealKey();
  ring_.AddSealing(key.id, kPrimarySender, key.record_key);
  return key;
}

void OfferedKeys::Begin(const FrameSession& session) {
  SALIUS_CHECK(!begun());
  session_ = session;
  present_ = NewKey();
  ring_.SealWith(present_.id);
}

KeyOffer OfferedKeys::ForOpening(int replica) {
  Lost(replica);
  plain_ = static_cast<ReplicaMask>(plain_ & ~ReplicaBit(replica));
  if (plain_ == 0) ring_.ForbidPlain(session_);
  return OfferOf(present_, replica);
}

std::optional<KeyOffer> OfferedKeys::Next(int replica) const {
  if ((plain_ & ReplicaBit(replica)) != 0) return std::nullopt;
  for (const Key* key : {&present_, &next_}) {
    if (key->id != 0 && (key->has & ReplicaBit(replica)) == 0) return OfferOf(*key, replica);
  }
  return std::nullopt;
}

void OfferedKeys::Took(int replica, const KeyOffer& offer, const SealKey& ack_key) {
  for (Key* key : {&present_, &next_}) {
    if (key->id != offer.key_id) continue;
    ring_.SetOpening(offer.key_id, offer.ack_sender, ack_key, session_);
    key->has = static_cast<ReplicaMask>(key->has | ReplicaBit(replica));
    key->answered = static_cast<ReplicaMask>(key->answered | ReplicaBit(replica));
    key->ack_keys[static_cast<size_t>(replica)] = ack_key;
  }
}

void OfferedKeys::Lost(int replica) {
  for (Key* key : {&present_, &next_}) {
    key->has = static_cast<ReplicaMask>(key->has & ~ReplicaBit(replica));
  }
}

void OfferedKeys::SealsNothing(int replica) {
  plain_ = static_cast<ReplicaMask>(plain_ | ReplicaBit(replica));
  ring_.AllowPlain(session_);
}

void OfferedKeys::Refused(const KeyOffer& offer) {
  if (offer.key_id == next_.id) {
    ring_.Remove(next_.id);
    next_ = {};
  }
  StartChange();
}

void OfferedKeys::StartChange() {
  if (changing()) return;
  if (retired_.id != 0) ring_.Remove(retired_.id);
  retired_ = {};
  next_ = NewKey();
}

bool OfferedKeys::ChangeWhenDue(int64_t now_ns, int64_t interval_ns) {
  if (since_ns_ == 0 || changes_until_ != changes_) {
    since_ns_ = now_ns;
    changes_until_ = changes_;
  }
  if (interval_ns <= 0 || now_ns - since_ns_ < interval_ns || changing()) return false;
  StartChange();
  return true;
}

bool OfferedKeys::Advance(ReplicaMask connected) {
  if (!changing() || (connected & ~next_.has & ~plain_) != 0) return false;
  ring_.SealWith(next_.id);
  retired_ = std::exchange(present_, std::exchange(next_, Key{}));
  ++changes_;
  return true;
}

KeysInUse OfferedKeys::InUse() const {
  KeysInUse keys;
  keys.record_key_id = present_.id;
  keys.record_key = present_.record_key;
  for (const Key* key : {&present_, &next_, &retired_}) {
    for (size_t i = 0; i < kMaxReplicas; ++i) {
      if ((key->answered & ReplicaBit(static_cast<int>(i))) == 0) continue;
      keys.ack_keys.push_back({static_cast<int>(i), key->id, key->ack_keys[i]});
    }
  }
  return keys;
}

}  // namespace salius
