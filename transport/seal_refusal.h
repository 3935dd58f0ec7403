// Why a datagram of a sealed session was refused.
//
// Needs the standard library only: processes of a direct volume use it.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstddef>
#include <cstdint>

namespace salius {

// The reason why a datagram was refused before its frame was looked at. Names are label values of
// metrics and are never reused.
enum class SealRefusal : uint8_t {
  kNone,
  kUnsealed,        // a plain frame
  kMalformed,       // no prefix of ours, or cut off
  kNoKey,           // the key is not known here
  kReplayed,        // its counter came before
  kTooOld,          // its counter is before the replay window
  kWrongTag,        // forged or damaged
  kForeignSession,  // its frame names a session that the key does not belong to
  kManySenders,     // one sender more than a key may have
};
inline constexpr size_t kSealRefusals = 9;

}  // namespace salius
