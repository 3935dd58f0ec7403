#include "replica/owner_book.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"

namespace salius {
namespace {

constexpr uint64_t kMagic = 0x314f'5355'494c'4153;  // "SALIUSO1"
constexpr uint32_t kVersion = 1;

constexpr size_t kVersionAt = 8;
constexpr size_t kCrcAt = 12;  // of [0, 12) and of everything from 16 on
constexpr size_t kCountAt = 16;
constexpr size_t kHeaderZeroAt = 20;
constexpr size_t kNameAt = 16;
constexpr size_t kNameBytes = kOwnerBytes - kNameAt;

uint32_t Checksum(absl::Span<const uint8_t> bytes) {
  return Crc32cExtend(Crc32c(bytes.first(kCrcAt)), bytes.subspan(kCountAt));
}

bool AllZero(absl::Span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
}

absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(absl::StrFormat("the file of owners is damaged: %s", what));
}

}  // namespace

absl::Status OwnerBook::Check(const keys::Identity& caller, const VolumeId& volume, Action action,
                              bool used) const {
  if (caller.kind == keys::Kind::kOperator) return absl::OkStatus();
  const auto owner = owners_.find(volume);
  if (owner != owners_.end()) {
    if (owner->second == caller) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrFormat("volume %s belongs to another identity than yours, %s: use the keys of the "
                        "host that opened it first, or have an operator forget it",
                        volume.ToString(), caller.ToString()));
  }
  if (action == Action::kUse) {
    if (!used) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrFormat("volume %s has no owner at this replica, and you are %s: mount or recover "
                        "it first, or ask as an operator",
                        volume.ToString(), caller.ToString()));
  }
  const size_t share = most_ * share_percent_ / 100;
  const auto own = std::count_if(owners_.begin(), owners_.end(),
                                 [&](const auto& one) { return one.second == caller; });
  if (owners_.size() < most_ && static_cast<size_t>(own) < share) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "this replica knows %d volumes, %d of them of %s: `salius forget` those that are used no more",
      owners_.size(), own, caller.ToString()));
}

bool OwnerBook::Claim(const keys::Identity& caller, const VolumeId& volume) {
  if (caller.kind == keys::Kind::kOperator) return false;
  return owners_.try_emplace(volume, caller).second;
}

bool OwnerBook::MaySee(const keys::Identity& caller, const VolumeId& volume) const {
  if (caller.kind == keys::Kind::kOperator) return true;
  const auto owner = owners_.find(volume);
  return owner != owners_.end() && owner->second == caller;
}

std::string OwnerBook::OwnerOf(const VolumeId& volume) const {
  const auto owner = owners_.find(volume);
  return owner == owners_.end() ? "" : owner->second.ToString();
}

std::string OwnerBook::Encode() const {
  std::vector<std::pair<VolumeId, std::string>> order;
  for (const auto& [volume, owner] : owners_) order.emplace_back(volume, owner.ToString());
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string bytes(kOwnerFileHeaderBytes + order.size() * kOwnerBytes, '\0');
  auto* const head = reinterpret_cast<uint8_t*>(bytes.data());
  StoreU64(head, kMagic);
  StoreU32(head + kVersionAt, kVersion);
  StoreU32(head + kCountAt, static_cast<uint32_t>(order.size()));
  uint8_t* at = head + kOwnerFileHeaderBytes;
  for (const auto& [volume, owner] : order) {
    SALIUS_CHECK(owner.size() <= kNameBytes, "an identity has at most 64 characters");
    std::memcpy(at, volume.bytes.data(), volume.bytes.size());
    std::memcpy(at + kNameAt, owner.data(), owner.size());
    at += kOwnerBytes;
  }
  StoreU32(head + kCrcAt, Checksum(AsBytes(bytes)));
  return bytes;
}

absl::Status OwnerBook::Decode(absl::Span<const uint8_t> bytes) {
  if (bytes.size() < kOwnerFileHeaderBytes) return Damaged("it is too short");
  const uint8_t* const head = bytes.data();
  if (LoadU64(head) != kMagic) return Damaged("it does not begin as one");
  if (LoadU32(head + kCrcAt) != Checksum(bytes)) return Damaged("its checksum is wrong");
  if (LoadU32(head + kVersionAt) != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the file of owners has version %d, this program knows version %d",
                        LoadU32(head + kVersionAt), kVersion));
  }
  const uint32_t count = LoadU32(head + kCountAt);
  if (count > kMaxOwners || bytes.size() != kOwnerFileHeaderBytes + count * kOwnerBytes ||
      !AllZero(bytes.subspan(kHeaderZeroAt, kOwnerFileHeaderBytes - kHeaderZeroAt))) {
    return Damaged("its header has wrong values");
  }
  absl::flat_hash_map<VolumeId, keys::Identity> owners;
  VolumeId before{};
  for (uint32_t i = 0; i < count; ++i) {
    const uint8_t* const at = head + kOwnerFileHeaderBytes + i * kOwnerBytes;
    VolumeId volume;
    std::memcpy(volume.bytes.data(), at, volume.bytes.size());
    const std::string_view padded(reinterpret_cast<const char*>(at + kNameAt), kNameBytes);
    const std::string_view name = padded.substr(0, padded.find('\0'));
    const absl::StatusOr<keys::Identity> owner = keys::ParseIdentity(name);
    if (volume <= before || !owner.ok() || owner->kind != keys::Kind::kClient ||
        !AllZero({at + kNameAt + name.size(), kNameBytes - name.size()})) {
      return Damaged(absl::StrFormat("owner %d has wrong values", i + 1));
    }
    before = volume;
    owners.emplace(volume, *owner);
  }
  owners_ = std::move(owners);
  return absl::OkStatus();
}

}  // namespace salius
