// Decodes prefixes of sealed frames, and opens them. A datagram that this fuzzer did not seal is
// never opened. Each accepted prefix encodes to the same bytes.
#include "proto/sealed_frame.h"

#include <sys/uio.h>

#include "absl/types/span.h"
#include "common/check.h"
#include "proto/frame_format.h"
#include "tests/fuzz/fuzz_util.h"
#include "transport/sealer.h"

namespace salius {
namespace {

void FuzzPrefix(std::string datagram) {
  SealPrefix prefix;
  if (DecodeSealPrefix(MutableBytes(datagram), datagram.size(), &prefix) != SealFault::kNone) {
    return;
  }
  std::string again(kSealPrefixBytes, '\xff');
  EncodeSealPrefix(prefix, MutableBytes(again));
  SALIUS_CHECK(datagram.substr(0, kSealPrefixBytes) == again);
  if (prefix.kind != SealKind::kSealed) return;
  SALIUS_CHECK(datagram.size() >= kSealBytes + kFrameHeaderBytes);
  static Opener opener{NewSealKey()};
  SALIUS_CHECK(opener.Open(prefix, {MutableBytes(datagram), datagram.size()}).empty());
}

// Seals the bytes as a frame under numbers that they choose, and opens the result.
void FuzzSealed(std::string frame) {
  if (frame.size() < sizeof(uint64_t)) return;
  const uint64_t chosen = LoadU64(frame.data());
  const SealPrefix prefix{SealKind::kSealed, static_cast<uint32_t>(chosen) | 1,
                          static_cast<uint32_t>(chosen >> 32) | 1, (chosen >> 2) + 1};
  static Sealer sealer{SealKey{1}};
  static Opener opener{SealKey{1}};
  const iovec part{frame.data(), frame.size()};
  std::string datagram(frame.size() + kSealBytes, '\0');
  sealer.Seal(prefix, absl::MakeConstSpan(&part, 1), MutableBytes(datagram));
  const auto opened = opener.Open(prefix, {MutableBytes(datagram), datagram.size()});
  SALIUS_CHECK(AsText(opened) == frame);
}

}  // namespace
}  // namespace salius

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string raw(reinterpret_cast<const char*>(data), size);
  salius::FuzzPrefix(raw);
  salius::FuzzSealed(raw);
  return 0;
}
