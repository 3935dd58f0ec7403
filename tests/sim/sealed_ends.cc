#include "tests/sim/sealed_ends.h"

#include <sys/uio.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "absl/types/span.h"
#include "common/bytes.h"
#include "common/check.h"

namespace salius::sim {
namespace {

constexpr int64_t kMs = 1'000'000;
// As client/session/replica_keys.cc.
constexpr int64_t kOldNoticeNs = 100 * kMs;
constexpr int64_t kTryAgainNs = 200 * kMs;

size_t HashOf(std::string_view bytes) { return std::hash<std::string_view>()(bytes); }

uint8_t* Bytes(std::string& text) { return reinterpret_cast<uint8_t*>(text.data()); }

SealPrefix PrefixOf(std::string_view datagram) {
  SealPrefix prefix;
  SALIUS_CHECK(DecodeSealPrefix(reinterpret_cast<const uint8_t*>(datagram.data()), datagram.size(),
                                &prefix) == SealFault::kNone);
  return prefix;
}

}  // namespace

void SealJudge::Sealed(const SealKey& key, std::string_view datagram) {
  sealed_.insert(HashOf(datagram));
  const auto nonce = NonceOf(PrefixOf(datagram));
  std::string used(key.begin(), key.end());
  used.append(nonce.begin(), nonce.end());
  if (!nonces_.insert(HashOf(used)).second) Break("a nonce is used twice under one key");
}

void SealJudge::Accepted(std::string_view datagram, Epoch epoch, Epoch newest,
                         std::unordered_set<size_t>& accepted) {
  const size_t hash = HashOf(datagram);
  if (sealed_.count(hash) == 0) Break("a datagram is accepted that no honest end sealed");
  if (!accepted.insert(hash).second) Break("a process accepts a datagram twice");
  if (epoch < newest) Break("a datagram of an earlier session is accepted");
}

void SealedEnd::NoteKey(uint32_t key_id, const SealKey& key, Epoch epoch) {
  keys_[key_id] = key;
  newest_ = std::max(newest_, epoch);
}

std::string SealedEnd::Seal(uint32_t key_id, std::string_view frame) {
  const std::shared_ptr<SealingKey> key = ring_.Sealing(key_id);
  if (key == nullptr) return "";
  std::string datagram(frame.size() + kSealBytes, '\0');
  const iovec part{const_cast<char*>(frame.data()), frame.size()};
  SealingKey::Use use(*key);
  SALIUS_CHECK(use.Seal(absl::MakeConstSpan(&part, 1), Bytes(datagram)) == datagram.size());
  const auto noted = keys_.find(key->key_id());
  // A key that no replica was given has no other place: its id names it.
  SealKey alone{};
  StoreU32(alone.data(), key->key_id());
  judge_.Sealed(noted != keys_.end() ? noted->second : alone, datagram);
  return datagram;
}

SealRefusal SealedEnd::Open(std::string& datagram, KeyRing::Opened* opened) {
  const std::string arrived = datagram;
  const SealRefusal refusal = ring_.Open(absl::MakeSpan(Bytes(datagram), datagram.size()), opened);
  if (refusal == SealRefusal::kNone && opened->prefix.key_id != 0 && !opened->frame.empty()) {
    judge_.Accepted(arrived, SessionOf(opened->frame.data()).epoch, newest_, accepted_);
  }
  return refusal;
}

absl::StatusOr<SealKey> ReplicaSeal::Take(const FrameSession& session, const KeyOffer& offer) {
  SALIUS_ASSIGN_OR_RETURN(const SealKey ack_key,
                          keys_.Take({session, offer.key_id, offer.record_key, offer.ack_sender}));
  end_.NoteKey(offer.key_id, ack_key, session.epoch);
  return ack_key;
}

ReplicaSeal::Arrived ReplicaSeal::Open(int64_t now, std::string_view datagram) {
  Arrived arrived;
  std::string bytes(datagram);
  KeyRing::Opened opened;
  const SealRefusal refusal = end_.Open(bytes, &opened);
  if (refusal == SealRefusal::kNoKey && notices_.Allow(now, "primary")) {
    SealPrefix notice = opened.prefix;
    notice.kind = SealKind::kNoKey;
    arrived.notice.resize(kSealPrefixBytes);
    EncodeSealPrefix(notice, Bytes(arrived.notice));
  }
  if (refusal == SealRefusal::kNone) {
    arrived.frame.assign(reinterpret_cast<const char*>(opened.frame.data()), opened.frame.size());
    arrived.key_id = opened.prefix.key_id;
  }
  return arrived;
}

std::string PrimarySeal::Open(int64_t now, int replica, std::string datagram) {
  KeyRing::Opened opened;
  if (end_.Open(datagram, &opened) != SealRefusal::kNone) return "";
  if (opened.prefix.kind == SealKind::kNoKey) {
    Peer& peer = peers_[replica];
    if (!end_.ring().Sealed(opened.prefix) || now - peer.given_ns < kOldNoticeNs) return "";
    keys_.Lost(replica);
    peer.wanted = true;
    return "";
  }
  // As ReplicaLinks: a replica acknowledges under its own key only.
  if (opened.prefix.sender != OfferedKeys::AckSender(replica)) return "";
  return std::string(reinterpret_cast<const char*>(opened.frame.data()), opened.frame.size());
}

KeyOffer PrimarySeal::Noted(const KeyOffer& offer) {
  end_.NoteKey(offer.key_id, offer.record_key, session_.epoch);
  return offer;
}

KeyOffer PrimarySeal::ForOpening(int replica, const FrameSession& session) {
  if (!keys_.begun()) {
    session_ = session;
    keys_.Begin(session);
  }
  return Noted(keys_.ForOpening(replica));
}

std::optional<KeyOffer> PrimarySeal::Next(int64_t now, int replica) {
  const std::optional<KeyOffer> offer = keys_.Next(replica);
  if (!offer) return std::nullopt;
  peers_[replica].tried_ns = now;
  return Noted(*offer);
}

void PrimarySeal::Took(int64_t now, int replica, const KeyOffer& offer, const SealKey& ack_key,
                       ReplicaMask connected) {
  keys_.Took(replica, offer, ack_key);
  peers_[replica].given_ns = now;
  keys_.Advance(connected);
  if (keys_.Next(replica)) peers_[replica].wanted = true;
}

ReplicaMask PrimarySeal::Refresh(int64_t now, ReplicaMask connected) {
  if (!keys_.begun()) return 0;
  if (change_at_ns_ == 0) change_at_ns_ = now + rotation_ns_;
  if (rotation_ns_ > 0 && now >= change_at_ns_) {
    change_at_ns_ = now + rotation_ns_;
    keys_.StartChange();
  }
  keys_.Advance(connected);
  ReplicaMask wanted = 0;
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if (peer.calling) continue;
    const auto index = static_cast<int>(i);
    const bool lacks = (connected & ReplicaBit(index)) != 0 && keys_.Next(index).has_value() &&
                       now - peer.tried_ns >= kTryAgainNs;
    if (!std::exchange(peer.wanted, false) && !lacks) continue;
    wanted = static_cast<ReplicaMask>(wanted | ReplicaBit(index));
  }
  return wanted;
}

}  // namespace salius::sim
