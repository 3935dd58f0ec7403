// Sealed frames, version 2 of the frame format (docs/wire-format.md, "Sealed frames"): a clear
// prefix of 24 bytes, a frame of version 1 that is encrypted, and a tag of 16 bytes. The prefix is
// authenticated too. This is the codec of the prefix; transport/sealer.h seals and opens.
//
// A replica without the key of a datagram answers with a notice: the datagram's own prefix, with
// another kind and nothing behind it. It asks for a new handshake. A forged notice can cause no
// more than that.
//
// Needs the standard library only: processes of a direct volume use it.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/id_types.h"

namespace salius {

inline constexpr uint32_t kSealedFrameMagic = 0x32464C53;  // "SLF2"
inline constexpr uint8_t kSealedFrameVersion = 2;
inline constexpr size_t kSealPrefixBytes = 24;
inline constexpr size_t kSealTagBytes = 16;
// Bytes that a sealed datagram adds to the frame in it.
inline constexpr size_t kSealBytes = kSealPrefixBytes + kSealTagBytes;
inline constexpr size_t kSealNonceBytes = 12;

enum class SealKind : uint8_t {
  kSealed = 0,
  kNoKey = 1,  // a notice: the sender lacks the key of the datagram with this prefix
};

struct SealPrefix {
  SealKind kind = SealKind::kSealed;
  uint32_t key_id = 0;   // never 0
  uint32_t sender = 0;   // never 0, and never given twice under one key
  uint64_t counter = 0;  // of the sender's datagrams under this key, from 1
  bool operator==(const SealPrefix&) const = default;
};

// Writes exactly kSealPrefixBytes.
void EncodeSealPrefix(const SealPrefix& prefix, uint8_t* out);

// The first check that a datagram failed, in the order of the checks.
enum class SealFault : uint8_t {
  kNone,
  kShort,     // fewer bytes than any datagram of its kind
  kUnsealed,  // it has the magic of a plain frame
  kMagic,     // not of this protocol
  kVersion,
  kKind,
  kReserved,  // bytes that must be zero
  kNumber,    // a key id, sender or counter that is 0, or a counter that is too large to be true
  kLength,    // bytes behind a notice
};

// Decodes and verifies the prefix of a datagram of `size` bytes. The tag is not verified. Sets
// `*prefix` unless the fault is before kReserved.
SealFault DecodeSealPrefix(const uint8_t* datagram, size_t size, SealPrefix* prefix);

// Returns the nonce under which a datagram with this prefix is sealed: sender, counter.
std::array<uint8_t, kSealNonceBytes> NonceOf(const SealPrefix& prefix);

// The session that a frame names. Each key belongs to one: a datagram whose frame names another is
// refused, however good its tag is.
struct FrameSession {
  VolumeId volume{};
  Epoch epoch = 0;
  uint64_t session = 0;
  friend bool operator==(const FrameSession&, const FrameSession&) = default;
};

// Returns the session that a frame of version 1 names. `frame` has at least kFrameHeaderBytes; they
// are not verified.
FrameSession SessionOf(const uint8_t* frame);

}  // namespace salius
