// The types of the numbers that name things (docs/protocol.md). Needs the standard library only, so
// that the library that is loaded into other programs may use it (client/direct/window). ids.cc has
// the functions of VolumeId, which need more.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <utility>

namespace salius {

// One run of a primary, or of a recovery, on a volume. Larger than every one before.
using Epoch = uint64_t;
// Number of a record within its epoch, from 1.
using Seq = uint64_t;
// Number of a file or directory within its volume, never reused.
using FileId = uint64_t;
// One life of a replica's memory; random, changes whenever memory was lost.
using Incarnation = uint64_t;
// One life of the file in which a replica keeps its promises; random, changes whenever that file
// was lost. 0: it keeps none.
using StoreId = uint64_t;

inline constexpr FileId kNoFileId = 0;
inline constexpr FileId kRootFileId = 1;

// UUID of a volume. All zero is no volume.
struct VolumeId {
  std::array<uint8_t, 16> bytes{};

  // Returns a new random UUID (version 4), from the kernel.
  static VolumeId Random();

  // Returns the form that ParseVolumeId() takes, in lower case.
  std::string ToString() const;

  friend bool operator==(const VolumeId&, const VolumeId&) = default;
  friend auto operator<=>(const VolumeId&, const VolumeId&) = default;

  template <typename H>
  friend H AbslHashValue(H state, const VolumeId& id) {
    return H::combine(std::move(state), id.bytes);
  }
};

}  // namespace salius
