#include "transport/key_ring.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "common/check.h"
#include "proto/frame_format.h"

namespace salius {

std::string_view SealRefusalName(SealRefusal refusal) {
  static constexpr std::array<std::string_view, kSealRefusals> kNames = {
      "none",    "unsealed",  "malformed",       "no_key",      "replayed",
      "too_old", "wrong_tag", "foreign_session", "many_senders"};
  return kNames[static_cast<size_t>(refusal)];
}

std::unique_ptr<Sealer> SealingKey::Borrow() {
  {
    absl::MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Sealer> sealer = std::move(idle_.back());
      idle_.pop_back();
      return sealer;
    }
  }
  return std::make_unique<Sealer>(key_);
}

void SealingKey::GiveBack(std::unique_ptr<Sealer> sealer) {
  absl::MutexLock lock(&mutex_);
  idle_.push_back(std::move(sealer));
}

void KeyRing::Watch(const void* owner, std::function<void()> changed) {
  absl::MutexLock lock(&watchers_mutex_);
  watchers_[owner] = std::move(changed);
}

void KeyRing::Unwatch(const void* owner) {
  absl::MutexLock lock(&watchers_mutex_);
  watchers_.erase(owner);
}

void KeyRing::CallWatchers() {
  absl::MutexLock lock(&watchers_mutex_);
  for (const auto& [owner, changed] : watchers_) changed();
}

FloodRules KeyRing::Rules(bool notices) const {
  FloodRules rules;
  absl::MutexLock lock(&mutex_);
  rules.plain = all_plain() || !plain_.empty();
  for (const auto& [id, key] : opening_) {
    if (key->windows.empty()) rules.senders.push_back({id.first, id.second, false, 0});
    for (const auto& [sender, window] : key->windows) {
      const uint64_t newest = window.newest();
      const uint64_t oldest =
          newest >= ReplayWindow::kCounters ? newest - ReplayWindow::kCounters + 1 : 0;
      rules.senders.push_back({id.first, sender, true, oldest});
    }
  }
  for (const auto& [id, key] : sealing_) {
    if (notices) rules.notices.push_back(id);
  }
  // Without keys each datagram gets its notice.
  rules.any_key = rules.senders.empty() || rules.senders.size() > FloodRules::kMostSenders;
  if (rules.any_key) rules.senders.clear();
  if (rules.notices.size() > FloodRules::kMostSenders) rules.notices.resize(FloodRules::kMostSenders);
  return rules;
}

absl::Status KeyRing::AddOpening(uint32_t key_id, uint32_t sender, const SealKey& key,
                                 const FrameSession& session) {
  {
    absl::MutexLock lock(&mutex_);
    std::unique_ptr<OpeningKey>& place = opening_[{key_id, sender}];
    if (place != nullptr && (place->key != key || place->session != session)) {
      return absl::AlreadyExistsError(
          absl::StrFormat("key id %08x is in use here: choose another one", key_id));
    }
    if (place == nullptr) place = std::make_unique<OpeningKey>(key, session);
  }
  CallWatchers();
  return absl::OkStatus();
}

void KeyRing::SetOpening(uint32_t key_id, uint32_t sender, const SealKey& key,
                         const FrameSession& session) {
  {
    absl::MutexLock lock(&mutex_);
    std::unique_ptr<OpeningKey>& place = opening_[{key_id, sender}];
    if (place != nullptr && place->key == key && place->session == session) return;
    place = std::make_unique<OpeningKey>(key, session);
  }
  CallWatchers();
}

void KeyRing::AddSealing(uint32_t key_id, uint32_t sender, const SealKey& key) {
  {
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<SealingKey>& place = sealing_[key_id];
    if (place == nullptr) place = std::make_shared<SealingKey>(key_id, sender, key);
  }
  CallWatchers();
}

void KeyRing::SealWith(uint32_t key_id) {
  absl::MutexLock lock(&mutex_);
  const auto found = sealing_.find(key_id);
  SALIUS_CHECK(found != sealing_.end());
  current_ = found->second;
}

void KeyRing::AllowPlain(const FrameSession& session) {
  {
    absl::MutexLock lock(&mutex_);
    if (std::find(plain_.begin(), plain_.end(), session) != plain_.end()) return;
    plain_.push_back(session);
  }
  CallWatchers();
}

void KeyRing::ForbidPlain(const FrameSession& session) {
  absl::MutexLock lock(&mutex_);
  std::erase(plain_, session);
}

size_t KeyRing::plain_sessions() const {
  absl::MutexLock lock(&mutex_);
  return plain_.size();
}

void KeyRing::Remove(uint32_t key_id) {
  absl::MutexLock lock(&mutex_);
  sealing_.erase(key_id);
  absl::erase_if(opening_, [key_id](const auto& entry) { return entry.first.first == key_id; });
}

std::shared_ptr<SealingKey> KeyRing::Sealing(uint32_t key_id) const {
  absl::MutexLock lock(&mutex_);
  if (key_id == 0) return current_;
  const auto found = sealing_.find(key_id);
  return found == sealing_.end() ? nullptr : found->second;
}

bool KeyRing::Sealed(const SealPrefix& prefix) const {
  const std::shared_ptr<SealingKey> key = Sealing(prefix.key_id);
  return key != nullptr && key->Sealed(prefix);
}

SealRefusal KeyRing::Open(absl::Span<uint8_t> datagram, Opened* opened) {
  const SealRefusal refusal = DoOpen(datagram, opened);
  if (refusal != SealRefusal::kNone) {
    refused_[static_cast<size_t>(refusal)].fetch_add(1, std::memory_order_relaxed);
  }
  return refusal;
}

SealRefusal KeyRing::DoOpen(absl::Span<uint8_t> datagram, Opened* opened) {
  *opened = {};
  SealPrefix& prefix = opened->prefix;
  const SealFault fault = DecodeSealPrefix(datagram.data(), datagram.size(), &prefix);
  if (fault == SealFault::kUnsealed && all_plain()) {
    opened->frame = datagram;
    return SealRefusal::kNone;
  }
  if (fault == SealFault::kUnsealed) {
    if (datagram.size() < kFrameHeaderBytes) return SealRefusal::kUnsealed;
    const FrameSession session = SessionOf(datagram.data());
    absl::MutexLock lock(&mutex_);
    if (std::find(plain_.begin(), plain_.end(), session) == plain_.end()) {
      return SealRefusal::kUnsealed;
    }
    opened->frame = datagram;
    return SealRefusal::kNone;
  }
  if (fault != SealFault::kNone) return SealRefusal::kMalformed;
  if (prefix.kind == SealKind::kNoKey) return SealRefusal::kNone;
  absl::MutexLock lock(&mutex_);
  auto found = opening_.find({prefix.key_id, prefix.sender});
  if (found == opening_.end()) found = opening_.find({prefix.key_id, kAnySender});
  if (found == opening_.end()) return SealRefusal::kNoKey;
  OpeningKey& key = *found->second;
  const auto known = key.windows.find(prefix.sender);
  if (known != key.windows.end()) {
    const ReplayWindow::Verdict verdict = known->second.Check(prefix.counter);
    if (verdict == ReplayWindow::Verdict::kSeen) return SealRefusal::kReplayed;
    if (verdict == ReplayWindow::Verdict::kTooOld) return SealRefusal::kTooOld;
  }
  opened->frame = key.opener.Open(prefix, datagram);
  if (opened->frame.empty()) return SealRefusal::kWrongTag;
  // Only now: a forged sender must not take a place, nor a forged counter move a window.
  if (known != key.windows.end()) {
    known->second.Take(prefix.counter);
  } else {
    if (key.windows.size() >= kMostSenders) return SealRefusal::kManySenders;
    key.windows[prefix.sender].Take(prefix.counter);
  }
  return SessionOf(opened->frame.data()) == key.session ? SealRefusal::kNone
                                                        : SealRefusal::kForeignSession;
}

}  // namespace salius
