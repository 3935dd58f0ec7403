#include "client/direct/window/sealing.h"

#include <nettle/gcm.h>
#include <nettle/memops.h>

#include <cstring>

#include "common/limits.h"
#include "common/require.h"
#include "proto/frame_format.h"

namespace salius::direct {

struct SealRoom {
  std::atomic<uint32_t> taken;
  gcm_aes128_ctx context;
  alignas(64) uint8_t bytes[kSealRoomBytes];
};

namespace {

// More than there are CPUs that seal at the same time, and few threads lose theirs while they do.
constexpr unsigned kRooms = 32;
// Only pages that were used take memory.
SealRoom rooms[kRooms];

SealRoom* TakeRoom() {
  for (SealRoom& room : rooms) {
    if (room.taken.load(std::memory_order_relaxed) == 0 &&
        room.taken.exchange(1, std::memory_order_acquire) == 0) {
      return &room;
    }
  }
  return nullptr;
}

void Begin(gcm_aes128_ctx& context, const SealPrefix& prefix, const uint8_t* clear) {
  static_assert(kSealNonceBytes == GCM_IV_SIZE);
  const auto nonce = NonceOf(prefix);
  gcm_aes128_set_iv(&context, nonce.size(), nonce.data());
  gcm_aes128_update(&context, kSealPrefixBytes, clear);
}

AckKey* FindKey(Header& header, uint32_t replica, uint32_t key_id) {
  for (AckKey& key : header.seal.ack_keys[replica]) {
    if (key.id == key_id) return &key;
  }
  return nullptr;
}

// Opens a datagram in place. Returns whether its tag is right; else its bytes are zero.
bool Decrypt(const SealKey& key, const SealPrefix& prefix, uint8_t* datagram, size_t size) {
  gcm_aes128_ctx context;
  gcm_aes128_set_key(&context, key.data());
  Begin(context, prefix, datagram);
  uint8_t* const frame = datagram + kSealPrefixBytes;
  const size_t bytes = size - kSealBytes;
  gcm_aes128_decrypt(&context, bytes, frame, frame);
  uint8_t tag[kSealTagBytes];
  gcm_aes128_digest(&context, sizeof(tag), tag);
  if (memeql_sec(tag, frame + bytes, sizeof(tag)) != 0) return true;
  std::memset(frame, 0, bytes);
  return false;
}

Opened DoOpen(const SharedWindow& window, uint32_t replica, uint8_t* datagram, size_t size) {
  Header& header = window.header();
  Opened opened;
  SealPrefix prefix;
  const SealFault fault = DecodeSealPrefix(datagram, size, &prefix);
  if (fault != SealFault::kNone) {
    opened.refusal =
        fault == SealFault::kUnsealed ? SealRefusal::kUnsealed : SealRefusal::kMalformed;
    return opened;
  }
  if (prefix.kind == SealKind::kNoKey) {
    header.seal.notices[replica] = prefix;
    opened.notice = true;
    return opened;
  }
  AckKey* const key = FindKey(header, replica, prefix.key_id);
  // The sender of a replica's acknowledgements is its number, from 1.
  if (key == nullptr || prefix.sender != replica + 1) {
    opened.refusal = SealRefusal::kNoKey;
    return opened;
  }
  switch (key->seen.Check(prefix.counter)) {
    case ReplayWindow::Verdict::kSeen:
      opened.refusal = SealRefusal::kReplayed;
      return opened;
    case ReplayWindow::Verdict::kTooOld:
      opened.refusal = SealRefusal::kTooOld;
      return opened;
    case ReplayWindow::Verdict::kNew:
      break;
  }
  if (!Decrypt(key->key, prefix, datagram, size)) {
    opened.refusal = SealRefusal::kWrongTag;
    return opened;
  }
  // Only now: a forged counter must not move the window.
  key->seen.Take(prefix.counter);
  opened.frame = datagram + kSealPrefixBytes;
  opened.bytes = size - kSealBytes;
  return opened;
}

}  // namespace

FrameSealer::FrameSealer(const SharedWindow& window, const RecordKey& key)
    : window_(window), key_id_(key.id) {
  if (key_id_ == 0) return;
  room_ = TakeRoom();
  if (room_ != nullptr) gcm_aes128_set_key(&room_->context, key.key.data());
}

FrameSealer::~FrameSealer() {
  if (room_ != nullptr) room_->taken.store(0, std::memory_order_release);
}

uint8_t* FrameSealer::bytes() const { return room_->bytes; }

size_t FrameSealer::Seal(uint8_t* datagram, size_t frame_bytes) {
  SealPrefix prefix;
  prefix.key_id = key_id_;
  prefix.sender = kProcessSender;
  // After the frame lies here complete: nothing else is ever sealed under this number.
  prefix.counter = window_.header().seal.next_counter.fetch_add(1, std::memory_order_relaxed);
  SALIUS_REQUIRE(prefix.counter != 0 && prefix.counter <= kMaxCount);
  EncodeSealPrefix(prefix, datagram);
  gcm_aes128_ctx& context = room_->context;
  Begin(context, prefix, datagram);
  uint8_t* const frame = datagram + kSealPrefixBytes;
  gcm_aes128_encrypt(&context, frame_bytes, frame, frame);
  gcm_aes128_digest(&context, kSealTagBytes, frame + frame_bytes);
  return frame_bytes + kSealBytes;
}

Opened OpenDatagram(const SharedWindow& window, uint32_t replica, uint8_t* datagram, size_t size) {
  const Opened opened = DoOpen(window, replica, datagram, size);
  if (opened.refusal != SealRefusal::kNone) {
    window.header().seal.refused[static_cast<size_t>(opened.refusal)].fetch_add(
        1, std::memory_order_relaxed);
  }
  return opened;
}

}  // namespace salius::direct
