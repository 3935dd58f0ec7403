#include "proto/sealed_frame.h"

#include <cstring>

#include "common/limits.h"
#include "common/load_store.h"
#include "proto/frame_format.h"
#include "proto/layout.h"

namespace salius {

using namespace frame_layout;  // NOLINT: offsets of this file's own formats

void EncodeSealPrefix(const SealPrefix& prefix, uint8_t* out) {
  StoreU32(out + kFrameMagicAt, kSealedFrameMagic);
  StoreU8(out + kFrameVersionAt, kSealedFrameVersion);
  StoreU8(out + kSealKindAt, static_cast<uint8_t>(prefix.kind));
  StoreU16(out + kSealReservedAt, 0);
  StoreU32(out + kSealKeyIdAt, prefix.key_id);
  StoreU32(out + kSealSenderAt, prefix.sender);
  StoreU64(out + kSealCounterAt, prefix.counter);
}

SealFault DecodeSealPrefix(const uint8_t* in, size_t size, SealPrefix* prefix) {
  if (size < kSealPrefixBytes) return SealFault::kShort;
  const uint32_t magic = LoadU32(in + kFrameMagicAt);
  if (magic == kFrameMagic) return SealFault::kUnsealed;
  if (magic != kSealedFrameMagic) return SealFault::kMagic;
  if (LoadU8(in + kFrameVersionAt) != kSealedFrameVersion) return SealFault::kVersion;
  const uint8_t kind = LoadU8(in + kSealKindAt);
  if (kind > static_cast<uint8_t>(SealKind::kNoKey)) return SealFault::kKind;
  prefix->kind = static_cast<SealKind>(kind);
  prefix->key_id = LoadU32(in + kSealKeyIdAt);
  prefix->sender = LoadU32(in + kSealSenderAt);
  prefix->counter = LoadU64(in + kSealCounterAt);
  if (LoadU16(in + kSealReservedAt) != 0) return SealFault::kReserved;
  const bool named = prefix->key_id != 0 && prefix->sender != 0 && prefix->counter != 0;
  if (!named || prefix->counter > kMaxCount) return SealFault::kNumber;
  if (prefix->kind == SealKind::kSealed) {
    return size < kSealBytes + kFrameHeaderBytes ? SealFault::kShort : SealFault::kNone;
  }
  return size == kSealPrefixBytes ? SealFault::kNone : SealFault::kLength;
}

std::array<uint8_t, kSealNonceBytes> NonceOf(const SealPrefix& prefix) {
  std::array<uint8_t, kSealNonceBytes> nonce;
  StoreU32(nonce.data(), prefix.sender);
  StoreU64(nonce.data() + sizeof(prefix.sender), prefix.counter);
  return nonce;
}

FrameSession SessionOf(const uint8_t* frame) {
  FrameSession session;
  std::memcpy(session.volume.bytes.data(), frame + kFrameVolumeAt, session.volume.bytes.size());
  session.epoch = LoadU64(frame + kFrameEpochAt);
  session.session = LoadU64(frame + kFrameSessionAt);
  return session;
}

}  // namespace salius
