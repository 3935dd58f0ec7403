// The owners of volumes: the identity that opened or fenced a volume first, and what each identity
// may do with it. Only a replica with keys has callers with an identity.
//
//   caller                      volume          open, fence       other calls
//   operator                    any             yes               yes
//   client, its owner           any             yes               yes
//   client                      owned           no                no
//   client                      new here        yes, and owns it  yes: there is nothing
//   client                      used, no owner  yes, and owns it  no
//
// A volume is "used, no owner" when its primary or its recovery called before this replica had
// keys. The file of owners ("owners", docs/replica.md) is beside that of the promises.
//
// pure: no thread, lock, socket, clock or file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/keys/identity.h"

namespace salius {

inline constexpr size_t kOwnerFileHeaderBytes = 32;
inline constexpr size_t kOwnerBytes = 80;
// As many as there are promises.
inline constexpr size_t kMaxOwners = 16384;

class OwnerBook {
 public:
  // The ways to act on a volume. kClaim makes the caller its owner: open and fence.
  enum class Action { kClaim, kUse };

  // Makes an empty book for at most `most` owners. One identity may own `share_percent` of them.
  explicit OwnerBook(size_t most = kMaxOwners, uint32_t share_percent = 100)
      : most_(most), share_percent_(share_percent) {}

  // Returns OK if the caller may do it. `used`: this replica has a log or a promise of the volume.
  //
  //   PERMISSION_DENIED    the table above; the message names the caller, and no other identity
  //   RESOURCE_EXHAUSTED   the caller would own one more volume, and there is no room
  absl::Status Check(const keys::Identity& caller, const VolumeId& volume, Action action,
                     bool used) const;
  // Makes the caller the owner of a volume without one, unless it is an operator. Returns whether
  // the book changed. Call it after Check.
  bool Claim(const keys::Identity& caller, const VolumeId& volume);
  void Forget(const VolumeId& volume) { owners_.erase(volume); }

  // Returns whether the caller may see that the volume exists.
  bool MaySee(const keys::Identity& caller, const VolumeId& volume) const;
  // Returns the owner as text, "" when there is none.
  std::string OwnerOf(const VolumeId& volume) const;
  size_t size() const { return owners_.size(); }

  // Returns the file's bytes, in ascending order of the volumes.
  std::string Encode() const;
  // Takes over the contents of a file. DATA_LOSS when the bytes differ from the ones written,
  // FAILED_PRECONDITION when another version of this program wrote them.
  absl::Status Decode(absl::Span<const uint8_t> bytes);

 private:
  const size_t most_;
  const uint32_t share_percent_;
  absl::flat_hash_map<VolumeId, keys::Identity> owners_;
};

}  // namespace salius
