// The promises of a replica, and the bytes of the file that keeps them over a reboot
// (docs/replica.md, "The promise file", gives every byte).
//
// pure: no thread, lock, socket, clock or file.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"

namespace salius {

// A host that called: its IPv6 address, or its IPv4 address mapped into one, or a number of its
// identity. All zero: unknown.
using PeerId = std::array<uint8_t, 16>;
// Parses "10.0.0.1:2345", "[::1]:2345" or such an address without a port; zero for anything else.
PeerId PeerIdOf(const std::string& address);
// Returns a number that stands for an identity where there are keys, whatever its hosts are. It is
// no address.
PeerId PeerIdOfIdentity(const std::string& identity);
// Returns the address as text, without a port; "" when it is unknown; "this identity" for one of
// PeerIdOfIdentity.
std::string PeerText(const PeerId& peer);

// The promise about one volume.
struct Promise {
  VolumeId volume{};
  Epoch promised = 0;  // to a recovery; 0: nothing
  uint64_t token = 0;  // of that recovery
  Epoch opened = 0;    // the largest epoch of a session that was opened here; 0: none
  PeerId peer{};       // the host that opened the last session, or else that called first
  bool operator==(const Promise&) const = default;

  // Returns the fence: no session of a lower epoch is served.
  Epoch fence_epoch() const { return std::max(promised, opened); }
};

// All promises, and a number that grows with every change of them.
struct PromiseSnapshot {
  uint64_t version = 0;
  std::vector<Promise> promises;
};

// The whole file.
struct PromiseFile {
  StoreId store = 0;            // never 0
  Incarnation incarnation = 0;  // of the arena that the last process used
  uint64_t process_starts = 0;  // of that arena, when that process had attached to it
  std::vector<Promise> promises;
  bool operator==(const PromiseFile&) const = default;
};

inline constexpr size_t kPromiseFileHeaderBytes = 64;
inline constexpr size_t kPromiseBytes = 64;
// More volumes than any host serves; a file of 1 MiB.
inline constexpr size_t kMaxPromises = 16384;

// Encodes the promises in ascending order of their volumes, whatever order they are given in.
std::string EncodePromiseFile(const PromiseFile& file);
// Decodes the file. DATA_LOSS when the bytes differ from the ones written, FAILED_PRECONDITION when
// another version of this program wrote them.
absl::StatusOr<PromiseFile> DecodePromiseFile(absl::Span<const uint8_t> bytes);

}  // namespace salius
