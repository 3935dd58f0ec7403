#include "client/direct/window/file_table.h"

#include <algorithm>

namespace salius::direct {
namespace {

// A search of this length ends: the table is as good as full.
constexpr uint32_t kMostProbes = 256;
constexpr uint64_t kCounterBits = 32;
constexpr uint64_t kCounter = (uint64_t{1} << kCounterBits) - 1;

uint32_t Hash(uint64_t inode) { return static_cast<uint32_t>((inode * 0x9E3779B97F4A7C15) >> 32); }

constexpr uint32_t BitOf(Reason reason) {
  return uint32_t{1} << static_cast<uint32_t>(reason);
}
// A real fsync(2) does not end these.
constexpr uint32_t kStickyReasons =
    BitOf(Reason::kMap) | BitOf(Reason::kStdio) | BitOf(Reason::kNoId);

// Later stores through a map, and later writes of a stream, are not seen.
uint8_t StickyOf(Reason reason) {
  if (reason == Reason::kNoId) return kStickyNoId;
  return (BitOf(reason) & kStickyReasons) != 0 ? kStickySession : 0;
}

// These may be of a change that is under way.
constexpr uint32_t kUnseenReasons = BitOf(Reason::kCopy) | BitOf(Reason::kAllocate) |
                                    BitOf(Reason::kSignal) | BitOf(Reason::kPosition);

uint64_t EpochOf(uint64_t uncovered) { return uncovered >> kCounterBits; }

bool IsUnderWay(uint64_t uncovered) { return EpochOf(uncovered) >= kUnseenEpoch; }

// Changes the file's word to the epoch that `next(word)` returns, and counts.
template <typename Next>
void ChangeEpoch(FileEntry& entry, Next next) {
  uint64_t before = entry.uncovered.load();
  uint64_t after = 0;
  do {
    after = (next(before) << kCounterBits) | ((before + 1) & kCounter);
  } while (!entry.uncovered.compare_exchange_weak(before, after));
}

}  // namespace

uint32_t FindFile(const SharedWindow& window, uint64_t inode) {
  const uint32_t mask = window.header().files - 1;
  for (uint32_t probe = 0; probe < std::min(kMostProbes, mask + 1); ++probe) {
    const uint32_t index = (Hash(inode) + probe) & mask;
    const uint64_t there = window.file(index).inode.load(std::memory_order_acquire);
    if (there == inode) return index;
    if (there == 0) return kNoFile;
  }
  return kNoFile;
}

uint32_t FindOrAddFile(const SharedWindow& window, uint64_t inode) {
  Header& header = window.header();
  const uint32_t mask = header.files - 1;
  for (uint32_t probe = 0; probe < std::min(kMostProbes, mask + 1); ++probe) {
    const uint32_t index = (Hash(inode) + probe) & mask;
    FileEntry& entry = window.file(index);
    const uint64_t there = entry.inode.load(std::memory_order_acquire);
    if (there == inode) return index;
    if (there != 0) continue;
    // Leave an eighth free: searches stay short.
    if (header.files_used >= header.files - header.files / 8) return kNoFile;
    ++header.files_used;
    ResetFile(window, index, kNoFileId);
    entry.inode.store(inode, std::memory_order_release);
    return index;
  }
  return kNoFile;
}

void ResetFile(const SharedWindow& window, uint32_t file, FileId id) {
  FileEntry& entry = window.file(file);
  // In this order: at every instant the entry is uncovered or still the old file's.
  UncoverFile(window, file, Reason::kNew);
  entry.tag.fetch_add(1);
  entry.last_seq.store(0);
  entry.unsynced.store(0);
  entry.syncing.store(0);
  entry.sticky.store(0);
  entry.failed.store(0);
  entry.id.store(id);
}

void IdentifyFile(const SharedWindow& window, uint32_t file, FileId id) {
  FileEntry& entry = window.file(file);
  const FileId known = entry.id.load();
  const bool unidentified = (entry.sticky.load() & kStickyNoId) != 0;
  if (!unidentified) {
    if (known == id) return;
    if (known != kNoFileId) return ResetFile(window, file, id);  // the inode number was used again
  }
  // A sync of the coordinator that began before the id was written does not bring it to the disk.
  // Recovery finds a file by its id only.
  UncoverFile(window, file, Reason::kNew);
  entry.id.store(id);
  entry.sticky.fetch_and(static_cast<uint8_t>(~kStickyNoId));
  entry.reasons.fetch_and(~BitOf(Reason::kNoId));
}

void LeaveUnidentified(const SharedWindow& window, uint32_t file, FileId maybe) {
  FileEntry& entry = window.file(file);
  const bool unidentified = (entry.sticky.load() & kStickyNoId) != 0;
  if (entry.id.load() != maybe && !unidentified) ResetFile(window, file, maybe);
  UncoverFile(window, file, Reason::kNoId);
  entry.id.store(maybe);
}

FileId TakeFileId(const SharedWindow& window, bool* few) {
  auto& ids = window.header().file_ids;
  *few = ids.next + ids.few >= ids.limit;
  return ids.next < ids.limit ? ids.next++ : kNoFileId;
}

void UncoverFile(const SharedWindow& window, uint32_t file, Reason reason) {
  FileEntry& entry = window.file(file);
  entry.reasons.fetch_or(BitOf(reason));
  if (const uint8_t sticky = StickyOf(reason)) entry.sticky.fetch_or(sticky);
  UncoverFile(window, file);
  entry.reasons.fetch_or(BitOf(reason));  // CoverFile may have cleared it before the word changed
}

void UncoverFile(const SharedWindow& window, uint32_t file) {
  ChangeEpoch(window.file(file), [&](uint64_t word) {
    return IsUnderWay(word) ? EpochOf(word) : window.header().sync_epoch.load();
  });
}

void BeginUnseenChange(const SharedWindow& window, uint32_t file, Reason reason) {
  FileEntry& entry = window.file(file);
  entry.reasons.fetch_or(BitOf(reason));
  ChangeEpoch(entry, [](uint64_t word) {
    return IsUnderWay(word) ? std::min(EpochOf(word) + 1, kManyUnseenEpoch) : kUnseenEpoch;
  });
  entry.reasons.fetch_or(BitOf(reason));  // as in UncoverFile
}

void EndUnseenChange(const SharedWindow& window, uint32_t file, Reason reason) {
  FileEntry& entry = window.file(file);
  entry.reasons.fetch_or(BitOf(reason));
  ChangeEpoch(entry, [&](uint64_t word) {
    const uint64_t epoch = EpochOf(word);
    if (epoch == kManyUnseenEpoch) return epoch;  // no longer counted
    return epoch > kUnseenEpoch ? epoch - 1 : window.header().sync_epoch.load();
  });
  entry.reasons.fetch_or(BitOf(reason));
}

bool StaysUncovered(const FileEntry& entry, uint64_t uncovered) {
  return entry.sticky.load() != 0 || IsUnderWay(uncovered);
}

bool IsCovered(const SharedWindow& window, const FileEntry& entry, uint64_t uncovered) {
  if (entry.sticky.load() != 0) return false;
  return EpochOf(uncovered) <= window.header().clean_epoch.load();
}

bool CoverFile(const SharedWindow& window, uint32_t file, uint64_t uncovered, uint32_t reasons) {
  FileEntry& entry = window.file(file);
  const bool stays = StaysUncovered(entry, uncovered);
  // The others are no longer true.
  if (stays) reasons &= ~(kStickyReasons | (IsUnderWay(uncovered) ? kUnseenReasons : 0));
  // The counter stays: a later uncovering must not give an earlier word again.
  const uint64_t covered = stays ? uncovered : uncovered & kCounter;
  if (!entry.uncovered.compare_exchange_strong(uncovered, covered)) return false;
  entry.reasons.fetch_and(~reasons);
  // An uncovering in between has a right to its reason.
  if (entry.uncovered.load() != covered) entry.reasons.fetch_or(reasons);
  return !stays;
}

SyncStart BeginSync(const SharedWindow& window) {
  SyncStart start;
  start.epoch = window.header().sync_epoch.fetch_add(1);
  start.upto = window.window().issued();
  return start;
}

void EndSync(const SharedWindow& window, uint64_t epoch) {
  std::atomic<uint64_t>& clean = window.header().clean_epoch;
  uint64_t before = clean.load();
  while (before < epoch && !clean.compare_exchange_weak(before, epoch)) {
  }
}

}  // namespace salius::direct
