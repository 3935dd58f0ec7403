// Reading directories: from the backing directory, and from the names that were not applied when
// the listing began. Of these the disk's entries are left out, whatever is applied meanwhile; they
// come last.
//
// Callers take a few entries at a time and name the offset of the next one. The answer comes from
// the last batch, or from the next read. It avoids seeks: btrfs lists up to the last name that
// existed at the open or at the last seek. With a seek for each call a listing would never end
// while the entries are being renamed.
#include <errno.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/volume/name_ops.h"
#include "common/check.h"
#include "storage/fs_calls.h"

namespace salius {

// The entries that one getdents64(2) returned.
struct DirBatch {
  // The most batches that are kept, some 100 KB each. Without a limit any program that opens
  // directories could use up the memory.
  static constexpr int kMostKept = 500;
  static inline std::atomic<int> made{0};

  DirBatch() { made.fetch_add(1); }
  ~DirBatch() { made.fetch_sub(1); }
  DirBatch(const DirBatch&) = delete;
  DirBatch& operator=(const DirBatch&) = delete;

  uint64_t from = 0;  // the offset it was read at
  std::vector<fs::RawDirEntry> entries;

  uint64_t end() const { return entries.empty() ? from : entries.back().next_offset; }
  // Returns the index of the entry at `offset`; entries.size() when it is not in this batch.
  size_t Find(uint64_t offset) const {
    if (offset == end()) return entries.size();
    if (offset == from) return 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].next_offset == offset) return i + 1;
    }
    return entries.size();
  }
};

namespace {

// Offsets behind those of every file system: entries of PendingNames.
constexpr uint64_t kPendingOffsets = uint64_t{1} << 63;

// Returns a batch with entries from `offset` on; at the end an empty one.
absl::StatusOr<std::shared_ptr<const DirBatch>> BatchAt(Backing& backing, Handle& handle,
                                                        uint64_t offset) {
  absl::MutexLock lock(&handle.dir_position);
  const std::shared_ptr<const DirBatch> last = std::exchange(handle.dir_batch, nullptr);
  // Offset 0 reads everything again: rewinddir(3).
  if (last != nullptr && offset != 0 && last->Find(offset) < last->entries.size()) {
    handle.dir_batch = last;
    return last;
  }
  if (last == nullptr || offset == 0 || offset != last->end()) {
    SALIUS_RETURN_IF_ERROR(backing.SeekDir(handle.fd->get(), offset));
  }
  auto next = std::make_shared<DirBatch>();
  next->from = offset;
  SALIUS_ASSIGN_OR_RETURN(next->entries, backing.ReadDirents(handle.fd->get()));
  if (DirBatch::made.load() <= DirBatch::kMostKept) handle.dir_batch = next;
  return std::shared_ptr<const DirBatch>(std::move(next));
}

}  // namespace

absl::Status NameOps::ReadDir(Handle& handle, uint64_t offset,
                             const std::function<bool(const DirEntry&)>& emit) const {
  Node& node = handle.node;
  if (!node.is_dir()) return ErrnoStatus(ENOTDIR, "readdir");
  SALIUS_ASSIGN_OR_RETURN(const std::shared_ptr<const Bindings::Snapshot> pending,
                          PendingAt(handle, offset));
  while (offset < kPendingOffsets) {
    SALIUS_ASSIGN_OR_RETURN(const std::shared_ptr<const DirBatch> batch,
                            BatchAt(backing_, handle, offset));
    if (batch->entries.empty()) break;
    for (size_t i = batch->Find(offset); i < batch->entries.size(); ++i) {
      const fs::RawDirEntry& raw = batch->entries[i];
      offset = raw.next_offset;
      if (check_.IsHidden(node, raw.name)) continue;
      if (pending != nullptr && pending->Covers(raw.name)) continue;
      uint32_t type = raw.type;
      if (type == 0) {
        const absl::StatusOr<struct stat> st = backing_.StatAt(node.path_fd.get(), raw.name);
        if (!st.ok()) continue;  // removed since
        type = st->st_mode & S_IFMT;
      }
      if (!emit({raw.name, raw.next_offset, raw.ino, type})) return absl::OkStatus();
    }
  }
  if (pending == nullptr) return absl::OkStatus();
  size_t next = offset < kPendingOffsets ? 0 : offset - kPendingOffsets;
  for (; next < pending->added.size(); ++next) {
    const auto& [name, object] = pending->added[next];
    if (!emit({name, kPendingOffsets + next + 1, object.ino, object.type})) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Bindings::Snapshot>> NameOps::PendingAt(
    Handle& handle, uint64_t offset) const {
  std::optional<NameLocks> locks;  // so that no name is added before the listing begins
  if (offset == 0 && pending_.ListingsAreFull()) {
    locks.emplace(std::vector<Node*>{&handle.node});
    SALIUS_RETURN_IF_ERROR(issuer_.AwaitNode(handle.node));
  }
  absl::MutexLock lock(&handle.dir_position);
  if (offset == 0) handle.dir_pending = pending_.SnapshotOf(handle.node);
  return handle.dir_pending;
}

}  // namespace salius
