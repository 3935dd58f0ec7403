#include "client/volume/name_waits.h"

#include <sys/stat.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace salius {
namespace {

// The bytes that a name may add to a directory: a block of 1 KiB that is halved for it, or its part
// of a larger one.
constexpr int64_t kNameBytes = 1024;

Counter* WaitsFor(const char* reason) {
  return &GetCounter("salius_volume_name_waits_total",
                     "Operations on names that waited although names=async", {{"reason", reason}});
}

}  // namespace

NameWaits::NameWaits(Backing& backing, PendingNames& pending, SpaceGuard& space, bool early)
    : backing_(backing),
      pending_(pending),
      space_(space),
      early_(early),
      counters_{WaitsFor("dirsync"), WaitsFor("operation"), WaitsFor("directory"),
                WaitsFor("overlay"), WaitsFor("space")} {}

bool NameWaits::ReturnsEarly(std::initializer_list<Node*> dirs, bool possible, bool adds) {
  if (!early_) return false;
  if (adds) {
    for (Node* const dir : dirs) dir->names_left().fetch_sub(1);
  }
  const std::optional<Reason> why = WhyWait(dirs, possible, adds);
  if (why.has_value()) counters_[*why]->Increment();
  return !why.has_value();
}

std::optional<NameWaits::Reason> NameWaits::WhyWait(std::initializer_list<Node*> dirs,
                                                    bool possible, bool adds) {
  if (dirsync_.load()) return kDirsync;
  if (!possible) return kOperation;
  if (pending_.IsFull()) return kOverlay;
  if (!space_.HasPlenty()) return kSpace;
  const Node* last = nullptr;
  for (Node* const dir : dirs) {
    if (dir == last) continue;  // a rename within one directory
    if (const std::optional<Reason> why = WhyDirWaits(*dir, adds); why.has_value()) return why;
    last = dir;
  }
  return std::nullopt;
}

std::optional<NameWaits::Reason> NameWaits::WhyDirWaits(Node& dir, bool adds) {
  // Asked each time: chattr(1) on the backing directory may change it while the volume is mounted.
  const absl::StatusOr<bool> synchronous = backing_.IsSyncDir(dir.path_fd.get());
  if (!synchronous.ok() || *synchronous) return kDirsync;
  uint8_t known = dir.plain.load();
  if (known == Node::kUnknown) {
    const absl::StatusOr<bool> plain = backing_.IsPlainDir(dir.path_fd.get());
    if (!plain.ok()) return kDirectory;
    known = *plain ? Node::kPlain : Node::kNotPlain;
    dir.plain.store(known);
  }
  if (known == Node::kNotPlain || (adds && !IndexHasRoom(dir))) return kDirectory;
  if (!IsFarFromQuota(dir)) return kSpace;
  return std::nullopt;
}

bool NameWaits::IndexHasRoom(Node& dir) {
  if (dir.names_left().load() >= 0) return true;
  const absl::StatusOr<struct stat> st = backing_.Stat(dir.path_fd.get());
  if (!st.ok()) return false;
  // An ext4 without large_dir has two levels of index blocks, with 8 bytes for each block below. A
  // block that is full is halved, so an index is full from this size on, or later.
  const auto block = static_cast<int64_t>(st->st_blksize);
  const int64_t smallest = block * (block / 8 / 2) * (block / 8);
  // A quarter of that, since a name may take a block of 1 KiB, and for the blocks of the index.
  const int64_t left = (smallest / 4 - static_cast<int64_t>(st->st_size)) / kNameBytes -
                       static_cast<int64_t>(pending_.size().entries);
  dir.names_left().store(left - 1);
  return left > 0;
}

bool NameWaits::IsFarFromQuota(Node& dir) {
  if (!space_.quota_binds_root()) return true;
  std::optional<struct stat> owner;
  {
    absl::MutexLock lock(&dir.state);
    const NodeChanges::Records& records = dir.seen_records();
    if (records.prediction != nullptr) owner = records.prediction->attributes();
  }
  if (!owner.has_value()) {
    const absl::StatusOr<struct stat> st = backing_.Stat(dir.path_fd.get());
    if (!st.ok()) return false;
    owner = *st;
  }
  return space_.IsFarFromQuota(owner->st_uid, owner->st_gid);
}

}  // namespace salius
