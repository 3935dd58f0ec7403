#include "log/state_file.h"

#include <fcntl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/file.h"
#include "common/limits.h"
#include "common/strings.h"

namespace salius {
namespace {

constexpr uint32_t kStateMagic = 0x31534C53;  // "SLS1"
constexpr uint16_t kStateVersion = 1;
constexpr size_t kSlots = 2;

// Offsets in a slot; docs/log-format.md has the same table.
constexpr size_t kMagicAt = 0;
constexpr size_t kVersionAt = 4;
constexpr size_t kGenerationAt = 8;
constexpr size_t kVolumeAt = 16;
constexpr size_t kEpochAt = 32;
constexpr size_t kOpenAt = 40;
constexpr size_t kModeAt = 41;
constexpr size_t kBootIdBytesAt = 42;
constexpr size_t kMembersAt = 43;
constexpr size_t kAcksAt = 44;
constexpr size_t kMountIdAt = 48;
constexpr size_t kCheckpointAt = 56;
constexpr size_t kTimestampAt = 64;
constexpr size_t kFileIdLimitAt = 72;
constexpr size_t kRecoveredEpochAt = 80;
constexpr size_t kRecoveredSeqAt = 88;
constexpr size_t kBootIdAt = 96;
constexpr size_t kBootIdRoom = 40;
constexpr size_t kMemberArrayAt = kBootIdAt + kBootIdRoom;
constexpr size_t kCrcAt = kStateSlotBytes - 4;

// Offsets in one member.
constexpr size_t kMemberIncarnationAt = 0;
constexpr size_t kMemberBaseAt = 8;
constexpr size_t kMemberAddressBytesAt = 16;
constexpr size_t kMemberAddressAt = 24;
constexpr size_t kMaxAddressBytes = 200;
constexpr size_t kMemberBytes = kMemberAddressAt + kMaxAddressBytes;
static_assert(kMemberArrayAt + kMaxReplicas * kMemberBytes <= kCrcAt);

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError("state: " + why);
}

// Checks the conditions of every note, whether it is about to be written or was read.
absl::Status CheckState(const VolumeState& state) {
  if (state.mode != Mode::kLocal && state.mode != Mode::kReplicated) {
    return Malformed(absl::StrFormat("unknown mode %d", static_cast<int>(state.mode)));
  }
  if (std::max({state.epoch, state.checkpoint, state.file_id_limit, state.recovered_epoch,
                state.recovered_seq}) > kMaxCount) {
    return Malformed(absl::StrFormat("epoch %d, checkpoint %d, file ids below %d, recovered (%d, %d)",
                                     state.epoch, state.checkpoint, state.file_id_limit,
                                     state.recovered_epoch, state.recovered_seq));
  }
  if (state.boot_id.size() > kBootIdRoom) {
    return Malformed(absl::StrFormat("boot id of %d bytes", state.boot_id.size()));
  }
  if (state.members.size() > kMaxReplicas) {
    return Malformed(absl::StrFormat("%d members, at most %d", state.members.size(), kMaxReplicas));
  }
  for (const Member& member : state.members) {
    if (member.address.empty() || member.address.size() > kMaxAddressBytes) {
      return Malformed(absl::StrFormat("member address of %d bytes", member.address.size()));
    }
    if (member.base > kMaxCount) return Malformed(absl::StrFormat("base %d", member.base));
  }
  if (state.acks == 0 || state.acks > kMaxReplicas) {
    return Malformed(absl::StrFormat("acks = %d", state.acks));
  }
  if (state.open && state.mode == Mode::kReplicated && state.members.size() < state.acks) {
    return Malformed(absl::StrFormat("replicated with %d members, but acks = %d",
                                     state.members.size(), state.acks));
  }
  return absl::OkStatus();
}

// Writes one note into its slot; on OK it is on disk.
absl::Status WriteSlot(Files& files, int fd, const VolumeState& state, uint64_t generation) {
  std::string slot = EncodeStateSlot(state, generation);
  const iovec part = {slot.data(), slot.size()};
  return files.PwritevSynced(fd, {&part, 1}, (generation % kSlots) * kStateSlotBytes);
}

}  // namespace

std::string_view ModeName(Mode mode) {
  switch (mode) {
    case Mode::kLocal:
      return "local";
    case Mode::kReplicated:
      return "replicated";
  }
  return "unknown";
}

std::string EncodeStateSlot(const VolumeState& state, uint64_t generation) {
  SALIUS_CHECK(generation > 0);
  SALIUS_CHECK_OK(CheckState(state));
  std::string slot(kStateSlotBytes, '\0');
  auto* const out = reinterpret_cast<uint8_t*>(slot.data());
  StoreU32(out + kMagicAt, kStateMagic);
  StoreU16(out + kVersionAt, kStateVersion);
  StoreU64(out + kGenerationAt, generation);
  std::memcpy(out + kVolumeAt, state.volume.bytes.data(), state.volume.bytes.size());
  StoreU64(out + kEpochAt, state.epoch);
  StoreU8(out + kOpenAt, state.open ? 1 : 0);
  StoreU8(out + kModeAt, static_cast<uint8_t>(state.mode));
  StoreU8(out + kBootIdBytesAt, static_cast<uint8_t>(state.boot_id.size()));
  StoreU8(out + kMembersAt, static_cast<uint8_t>(state.members.size()));
  StoreU32(out + kAcksAt, state.acks);
  StoreU64(out + kMountIdAt, state.mount_id);
  StoreU64(out + kCheckpointAt, state.checkpoint);
  StoreU64(out + kTimestampAt, state.last_timestamp_ns);
  StoreU64(out + kFileIdLimitAt, state.file_id_limit);
  StoreU64(out + kRecoveredEpochAt, state.recovered_epoch);
  StoreU64(out + kRecoveredSeqAt, state.recovered_seq);
  std::memcpy(out + kBootIdAt, state.boot_id.data(), state.boot_id.size());
  uint8_t* to = out + kMemberArrayAt;
  for (const Member& member : state.members) {
    StoreU64(to + kMemberIncarnationAt, member.incarnation);
    StoreU64(to + kMemberBaseAt, member.base);
    StoreU8(to + kMemberAddressBytesAt, static_cast<uint8_t>(member.address.size()));
    std::memcpy(to + kMemberAddressAt, member.address.data(), member.address.size());
    to += kMemberBytes;
  }
  StoreU32(out + kCrcAt, Crc32c({out, kCrcAt}));
  return slot;
}

namespace {

absl::StatusOr<Member> DecodeMember(absl::Span<const uint8_t> bytes) {
  Member member;
  member.incarnation = LoadU64(bytes.data() + kMemberIncarnationAt);
  member.base = LoadU64(bytes.data() + kMemberBaseAt);
  const size_t size = LoadU8(bytes.data() + kMemberAddressBytesAt);
  if (size > kMaxAddressBytes)
    return Malformed(absl::StrFormat("member address of %d bytes", size));
  member.address = AsText(bytes.subspan(kMemberAddressAt, size));
  return member;
}

}  // namespace

absl::StatusOr<DecodedStateSlot> DecodeStateSlot(absl::Span<const uint8_t> slot) {
  if (slot.size() != kStateSlotBytes) {
    return absl::DataLossError(
        absl::StrFormat("state: slot of %d bytes, expected %d", slot.size(), kStateSlotBytes));
  }
  const uint8_t* const in = slot.data();
  if (LoadU32(in + kCrcAt) != Crc32c({in, kCrcAt})) {
    return absl::DataLossError("state: checksum does not match");
  }
  if (LoadU32(in + kMagicAt) != kStateMagic) {
    return Malformed(absl::StrFormat("magic %08x", LoadU32(in + kMagicAt)));
  }
  if (LoadU16(in + kVersionAt) != kStateVersion) {
    return Malformed(absl::StrFormat("version %d, this program knows %d", LoadU16(in + kVersionAt),
                                     kStateVersion));
  }
  DecodedStateSlot decoded;
  decoded.generation = LoadU64(in + kGenerationAt);
  if (decoded.generation == 0 || decoded.generation > kMaxCount) {
    return Malformed(absl::StrFormat("generation %d", decoded.generation));
  }
  VolumeState& state = decoded.state;
  std::memcpy(state.volume.bytes.data(), in + kVolumeAt, state.volume.bytes.size());
  state.epoch = LoadU64(in + kEpochAt);
  if (LoadU8(in + kOpenAt) > 1) return Malformed("neither open nor clean");
  state.open = LoadU8(in + kOpenAt) == 1;
  state.mode = static_cast<Mode>(LoadU8(in + kModeAt));
  state.acks = LoadU32(in + kAcksAt);
  state.mount_id = LoadU64(in + kMountIdAt);
  state.checkpoint = LoadU64(in + kCheckpointAt);
  state.last_timestamp_ns = LoadU64(in + kTimestampAt);
  state.file_id_limit = LoadU64(in + kFileIdLimitAt);
  state.recovered_epoch = LoadU64(in + kRecoveredEpochAt);
  state.recovered_seq = LoadU64(in + kRecoveredSeqAt);
  const size_t boot_id_bytes = std::min<size_t>(LoadU8(in + kBootIdBytesAt), kBootIdRoom + 1);
  state.boot_id = AsText(slot.subspan(kBootIdAt, boot_id_bytes));
  const size_t members = std::min<size_t>(LoadU8(in + kMembersAt), kMaxReplicas + 1);
  for (size_t i = 0; i < members; ++i) {
    SALIUS_ASSIGN_OR_RETURN(
        Member member, DecodeMember(slot.subspan(kMemberArrayAt + i * kMemberBytes, kMemberBytes)));
    state.members.push_back(std::move(member));
  }
  SALIUS_RETURN_IF_ERROR(CheckState(state));
  // One note has one encoding, so this is the check of every reserved and unused byte.
  if (EncodeStateSlot(state, decoded.generation) != AsText(slot)) {
    return Malformed("reserved or unused bytes are not zero");
  }
  return decoded;
}

StateFile::StateFile(Files& files, BackingFd fd, VolumeState state, uint64_t generation)
    : files_(&files), fd_(std::move(fd)), state_(std::move(state)), generation_(generation) {}

absl::StatusOr<StateFile> StateFile::Create(Files& files, int dirfd, const std::string& name,
                                            const VolumeState& initial) {
  SALIUS_RETURN_IF_ERROR(CheckState(initial));
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, files.CreateAt(dirfd, name, O_RDWR | O_EXCL, 0600));
  // The first note is in both slots: from the first byte of the next write on there is an older
  // note to fall back to.
  constexpr uint64_t kFirstGenerations = 2;
  for (uint64_t generation = 1; generation <= kFirstGenerations; ++generation) {
    SALIUS_RETURN_IF_ERROR(WriteSlot(files, fd.get(), initial, generation));
  }
  SALIUS_RETURN_IF_ERROR(files.Fsync(fd.get()));
  SALIUS_ASSIGN_OR_RETURN(const BackingFd dir, files.OpenAt(dirfd, ".", O_RDONLY | O_DIRECTORY));
  SALIUS_RETURN_IF_ERROR(files.Fsync(dir.get()));
  return StateFile(files, std::move(fd), initial, kFirstGenerations);
}

absl::StatusOr<StateFile> StateFile::Open(Files& files, int dirfd, const std::string& name) {
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, files.OpenAt(dirfd, name, O_RDWR | O_NOFOLLOW));
  // A process that died inside Write() may have left a note that is in the page cache only. The
  // caller relies on the note read here. So it goes to the disk first, and is read from there:
  // after a failed write the cache holds pages that look clean and are on no disk.
  SALIUS_RETURN_IF_ERROR(files.Fdatasync(fd.get()));
  files.DropCache(fd.get());
  std::string bytes(kSlots * kStateSlotBytes, '\0');
  SALIUS_ASSIGN_OR_RETURN(const size_t got, files.Pread(fd.get(), bytes.data(), bytes.size(), 0));
  bytes.resize(got);

  DecodedStateSlot newest;
  std::string reasons;
  for (size_t i = 0; i < kSlots; ++i) {
    const size_t offset = std::min(i * kStateSlotBytes, bytes.size());
    const size_t size = std::min(bytes.size() - offset, kStateSlotBytes);
    absl::StatusOr<DecodedStateSlot> slot = DecodeStateSlot(AsBytes(bytes).subspan(offset, size));
    if (slot.ok() && slot->generation % kSlots != i) {
      slot = Malformed(absl::StrFormat("generation %d stands in slot %d", slot->generation, i));
    }
    if (slot.ok()) {
      if (slot->generation > newest.generation) newest = *std::move(slot);
    } else if (absl::IsInvalidArgument(slot.status())) {
      // It is whole, but of an unknown version. It may be the newest note: the older one will not
      // do.
      return AtPath(slot.status(), PathAt(dirfd, name));
    } else {
      reasons += absl::StrFormat("%sslot %d: %s", reasons.empty() ? "" : "; ", i,
                                 Sv(slot.status().message()));
    }
  }
  if (newest.generation == 0) {
    return absl::DataLossError(
        absl::StrFormat("%s: no valid note (%s)", PathAt(dirfd, name), reasons));
  }
  return StateFile(files, std::move(fd), std::move(newest.state), newest.generation);
}

absl::Status StateFile::Write(const VolumeState& next) {
  if (failed_) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: an earlier write failed, so what is on disk is not known", PathOfFd(fd_.get())));
  }
  SALIUS_RETURN_IF_ERROR(CheckState(next));
  if (next.volume != state_.volume) return Malformed("note of another volume");
  if (absl::Status status = WriteSlot(*files_, fd_.get(), next, generation_ + 1); !status.ok()) {
    failed_ = true;
    return status;
  }
  state_ = next;
  ++generation_;
  return absl::OkStatus();
}

}  // namespace salius
