// The links' keys of a sealed session: giving them to replicas, and changing them.
#include <utility>

#include "client/session/replica_links.h"
#include "common/log.h"
#include "common/strings.h"

namespace salius {
namespace {

constexpr int64_t kMs = 1'000'000;
// A notice "no key" so soon after the replica was given a key is about a datagram sent before.
constexpr int64_t kOldNoticeNs = 100 * kMs;
// How often a replica that does not take a key is tried.
constexpr int64_t kTryAgainNs = 200 * kMs;

}  // namespace

std::optional<SealingUse> ReplicaLinks::Sealing() const {
  shared_.mu.AssertReaderHeld();
  if (!sealed() || keys_.plain() != 0 || (peers_.empty() && !must_seal())) return std::nullopt;
  SealingUse use;
  use.key_changes = keys_.changes();
  for (size_t i = 1; i < kSealRefusals; ++i) {
    const auto refusal = static_cast<SealRefusal>(i);
    use.refusals.push_back({std::string(SealRefusalName(refusal)), ring_.refused(refusal)});
  }
  use.refusals.push_back({"filtered", ring_.filtered()});
  return use;
}

KeyOffer ReplicaLinks::KeyForOpening(int index) {
  absl::MutexLock lock(&shared_.mu);
  if (!keys_.begun()) {
    const SessionKey& key = shared_.core.key();
    keys_.Begin({key.volume, key.epoch, key.session});
  }
  KeyOffer offer = keys_.ForOpening(index);
  offer.required = must_seal();
  PublishKeys();
  return offer;
}

void ReplicaLinks::PublishKeys() {
  if (share_keys_) share_keys_(keys_.InUse());
}

void ReplicaLinks::TookKey(int index, const KeyOffer& offer, const SealKey& ack_key, int64_t now) {
  keys_.Took(index, offer, ack_key);
  sender_->SetPlain(static_cast<size_t>(index), false);
  peers_[index].key_given_ns = now;
  keys_.Advance(shared_.core.policy().connected());
  PublishKeys();
}

void ReplicaLinks::TookNoKey(int index) {
  keys_.SealsNothing(index);
  sender_->SetPlain(static_cast<size_t>(index), true);
  keys_.Advance(shared_.core.policy().connected());
  SLOG_WARN("{}: replica {} does not seal datagrams: other users of this host can read and forge "
            "them; upgrade it, and mount the volume again",
            shared_.options.session_name, peers_[index].address);
}

void ReplicaLinks::OnNoKey(const SocketAddress& from) {
  int index = -1;
  {
    absl::MutexLock lock(&shared_.mu);
    index = Find(from);
  }
  if (index >= 0) NoKey(index);
}

void ReplicaLinks::NoKey(int index) {
  absl::MutexLock lock(&shared_.mu);
  Peer& peer = peers_[index];
  if (shared_.clock.MonotonicNanos() - peer.key_given_ns < kOldNoticeNs) return;
  keys_.Lost(index);
  peer.key_wanted = true;
  shared_.session_cv.SignalAll();
}

void ReplicaLinks::GiveKey(int index) {
  Peer& peer = peers_[index];
  SessionKey key;
  std::optional<KeyOffer> offer;
  Seq base = 0;
  Incarnation incarnation = 0;
  {
    absl::MutexLock lock(&shared_.mu);
    const Replicator& policy = shared_.core.policy();
    const int64_t now = shared_.clock.MonotonicNanos();
    if ((policy.connected() & ReplicaBit(index)) == 0) return;
    offer = keys_.Next(index);
    if (!offer) return;
    key = shared_.core.key();
    base = policy.base(index);
    incarnation = policy.replica(index, now).incarnation;
    peer.key_tried_ns = now;
  }
  const absl::StatusOr<OpenedSession> given =
      peer.control->GiveKey(config_, key.epoch, key.session, base, kOpenDeadlineMs, *offer);
  SharedCore::Turn turn(shared_);
  const int64_t now = shared_.clock.MonotonicNanos();
  if (given.ok() && given->incarnation == incarnation) {
    TookKey(index, *offer, *given->ack_key, now);
    // A process of another version may have the replica's memory now.
    shared_.core.paths().SetCompact(static_cast<size_t>(index), given->compact_records);
    if (keys_.Next(index)) peer.key_wanted = true;
    return;
  }
  if (given.ok() || absl::IsNotFound(given.status())) {
    turn.Feed(now, input::WentBack{index});
  } else if (absl::IsFailedPrecondition(given.status())) {
    turn.Feed(now, input::OpenFailed{index, std::string(given.status().message()), true});
  } else if (absl::IsAlreadyExists(given.status())) {
    keys_.Refused(*offer);
    PublishKeys();
  } else {
    SLOG_INFO("{}: replica {} has not taken a key yet: {}", shared_.options.session_name,
              peer.address, Sv(given.status().message()));
  }
}

void ReplicaLinks::RefreshKeys() {
  const int64_t now = shared_.clock.MonotonicNanos();
  absl::MutexLock lock(&shared_.mu);
  if (!keys_.begun()) return;
  if (keys_.ChangeWhenDue(now, shared_.options.key_rotation_ns)) PublishKeys();
  const ReplicaMask connected = shared_.core.policy().connected();
  if (keys_.Advance(connected)) PublishKeys();
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    if ((connected & ReplicaBit(i)) == 0 || now - peer.key_tried_ns < kTryAgainNs) continue;
    if (!keys_.Next(static_cast<int>(i))) continue;
    peer.key_wanted = true;
    shared_.session_cv.SignalAll();
  }
}

}  // namespace salius
