#include "replica/promise.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/limits.h"
#include "common/net.h"

namespace salius {
namespace {

constexpr uint64_t kMagic = 0x3150'5355'494C'4153;  // "SALIUSP1"
constexpr uint32_t kVersion = 1;

constexpr size_t kVersionAt = 8;
constexpr size_t kCrcAt = 12;  // of [0, 12) and of everything from 16 on
constexpr size_t kStoreAt = 16;
constexpr size_t kIncarnationAt = 24;
constexpr size_t kStartsAt = 32;
constexpr size_t kCountAt = 40;
constexpr size_t kHeaderZeroAt = 44;

constexpr size_t kPromisedAt = 16;
constexpr size_t kTokenAt = 24;
constexpr size_t kOpenedAt = 32;
constexpr size_t kPeerAt = 40;
constexpr size_t kZeroAt = 56;

// Begins the number of an identity: 1::/16 has no addresses of hosts.
constexpr PeerId kIdentityPrefix = {0, 1};

uint32_t Checksum(absl::Span<const uint8_t> bytes) {
  return Crc32cExtend(Crc32c(bytes.first(kCrcAt)), bytes.subspan(kStoreAt));
}

bool AllZero(absl::Span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
}

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(absl::StrFormat("the promise file is damaged: %s", what));
}

}  // namespace

PeerId PeerIdOf(const std::string& address) {
  PeerId peer{};
  const absl::StatusOr<HostPort> host = ParseHostPort(address, 0);
  if (!host.ok()) return peer;
  const std::string text = host->host.substr(0, host->host.find('%'));
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    peer[10] = peer[11] = 0xff;
    std::memcpy(peer.data() + 12, &v4, sizeof(v4));
    return peer;
  }
  in6_addr v6;
  if (inet_pton(AF_INET6, text.c_str(), &v6) == 1) std::memcpy(peer.data(), &v6, sizeof(v6));
  return peer;
}

PeerId PeerIdOfIdentity(const std::string& identity) {
  PeerId peer = kIdentityPrefix;
  constexpr uint64_t kPrime = 0x100'0000'01b3;
  // FNV-1a, 112 of its bits from two beginnings. The authority chooses the names: no one makes them
  // collide.
  for (const size_t half : {size_t{2}, size_t{9}}) {
    uint64_t hash = 0xcbf2'9ce4'8422'2325 ^ half;
    for (const char c : identity) hash = (hash ^ static_cast<uint8_t>(c)) * kPrime;
    for (size_t i = 0; i < 7; ++i) peer[half + i] = static_cast<uint8_t>(hash >> (8 * i));
  }
  return peer;
}

std::string PeerText(const PeerId& peer) {
  if (peer == PeerId{}) return "";
  if (std::equal(kIdentityPrefix.begin(), kIdentityPrefix.begin() + 2, peer.begin())) {
    return "this identity";
  }
  in6_addr v6;
  std::memcpy(&v6, peer.data(), sizeof(v6));
  char text[INET6_ADDRSTRLEN];
  const bool v4 = IN6_IS_ADDR_V4MAPPED(&v6) != 0;
  const void* const from = v4 ? static_cast<const void*>(peer.data() + 12) : &v6;
  SALIUS_CHECK(inet_ntop(v4 ? AF_INET : AF_INET6, from, text, sizeof(text)) != nullptr);
  return text;
}

std::string EncodePromiseFile(const PromiseFile& file) {
  std::vector<const Promise*> order;
  for (const Promise& promise : file.promises) order.push_back(&promise);
  std::sort(order.begin(), order.end(),
            [](const Promise* a, const Promise* b) { return a->volume < b->volume; });
  std::string bytes(kPromiseFileHeaderBytes + order.size() * kPromiseBytes, '\0');
  auto* const head = reinterpret_cast<uint8_t*>(bytes.data());
  StoreU64(head, kMagic);
  StoreU32(head + kVersionAt, kVersion);
  StoreU64(head + kStoreAt, file.store);
  StoreU64(head + kIncarnationAt, file.incarnation);
  StoreU64(head + kStartsAt, file.process_starts);
  StoreU32(head + kCountAt, static_cast<uint32_t>(order.size()));
  uint8_t* at = head + kPromiseFileHeaderBytes;
  for (const Promise* const promise : order) {
    std::memcpy(at, promise->volume.bytes.data(), promise->volume.bytes.size());
    StoreU64(at + kPromisedAt, promise->promised);
    StoreU64(at + kTokenAt, promise->token);
    StoreU64(at + kOpenedAt, promise->opened);
    std::memcpy(at + kPeerAt, promise->peer.data(), promise->peer.size());
    at += kPromiseBytes;
  }
  StoreU32(head + kCrcAt, Checksum(AsBytes(bytes)));
  return bytes;
}

absl::StatusOr<PromiseFile> DecodePromiseFile(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < kPromiseFileHeaderBytes) return Damaged("it is too short");
  const uint8_t* const head = bytes.data();
  if (LoadU64(head) != kMagic) return Damaged("it does not begin as one");
  if (LoadU32(head + kCrcAt) != Checksum(bytes)) return Damaged("its checksum is wrong");
  if (LoadU32(head + kVersionAt) != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the promise file has version %d, this program knows version %d",
                        LoadU32(head + kVersionAt), kVersion));
  }
  PromiseFile file;
  file.store = LoadU64(head + kStoreAt);
  file.incarnation = LoadU64(head + kIncarnationAt);
  file.process_starts = LoadU64(head + kStartsAt);
  const uint32_t count = LoadU32(head + kCountAt);
  if (file.store == 0 || count > kMaxPromises ||
      bytes.size() != kPromiseFileHeaderBytes + count * kPromiseBytes ||
      !AllZero(bytes.subspan(kHeaderZeroAt, kPromiseFileHeaderBytes - kHeaderZeroAt))) {
    return Damaged("its header says what cannot be");
  }
  VolumeId before{};
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t* const at = head + kPromiseFileHeaderBytes + i * kPromiseBytes;
    Promise promise;
    std::memcpy(promise.volume.bytes.data(), at, promise.volume.bytes.size());
    promise.promised = LoadU64(at + kPromisedAt);
    promise.token = LoadU64(at + kTokenAt);
    promise.opened = LoadU64(at + kOpenedAt);
    std::memcpy(promise.peer.data(), at + kPeerAt, promise.peer.size());
    if (promise.volume <= before || promise.fence_epoch() == 0 ||
        promise.fence_epoch() > kMaxCount ||
        !AllZero({at + kZeroAt, kPromiseBytes - kZeroAt})) {
      return Damaged(absl::StrFormat("promise %d says what cannot be", i + 1));
    }
    before = promise.volume;
    file.promises.push_back(promise);
  }
  return file;
}

}  // namespace salius
