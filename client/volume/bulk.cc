// Bulk files: past `bulk_limit_bytes` of plain writes since a file's last sync, its data goes to
// the backing file at once and is not logged, because one sequential disk sync is then cheaper than
// copies over the network. The same path serves files without a name.
//
// A bulk file's truncates and allocations are logged like any file's. Records from before that
// recovery replays must not need the room that these gave back, nor bring back bytes that they cut
// off.
//
// The end of bulk must keep I3. Records of the file from before it became bulk may still be
// replayed; they must not overwrite bulk data that an fsync has acknowledged. So a sync first has
// every record <= s of the file applied, syncs the data, and makes "on disk up to s" durable before
// it returns. A file also stops being bulk when a checkpoint's sync covered its last direct write
// and the noted checkpoint covers all of its records: then none of them is replayed. Until then the
// node is kept alive, because an fsync through any later handle must cover these bytes too.
#include <errno.h>

#include <algorithm>
#include <utility>

#include "client/volume/volume_impl.h"
#include "common/check.h"
#include "common/log.h"
#include "storage/fs_calls.h"

namespace salius {

absl::StatusOr<bool> Volume::Impl::PrepareNameless(Node& node) {
  {
    absl::MutexLock lock(&node.state);
    if (!node.orphan) return false;
  }
  SALIUS_RETURN_IF_ERROR(AwaitNode(node));
  return true;
}

absl::StatusOr<bool> Volume::Impl::PrepareDirect(Node& node) {
  if (!node.bulk) return PrepareNameless(node);
  SALIUS_RETURN_IF_ERROR(AwaitNode(node));
  return true;
}

absl::Status Volume::Impl::CountUnsynced(Node& node, uint64_t bytes) {
  const uint64_t limit = options.config.bulk_limit_bytes;  // 0: everything is logged
  node.unsynced_bytes += bytes;
  if (node.bulk || limit == 0 || node.unsynced_bytes <= limit) return absl::OkStatus();
  {
    absl::MutexLock lock(&node.state);
    if (node.orphan) return absl::OkStatus();  // direct already
  }
  SALIUS_RETURN_IF_ERROR(AwaitNode(node));
  node.bulk = true;
  table.Pin(node);
  bulk_entered.Increment();
  absl::MutexLock lock(&bulk_mu);
  bulk_nodes[&node] = BulkState();
  return absl::OkStatus();
}

absl::Status Volume::Impl::DirectWrite(Node& node, int fd, uint64_t offset, std::string_view data) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(data.data());
  const absl::Status written =
      PwriteFull(fd, absl::MakeConstSpan(bytes, data.size()), static_cast<int64_t>(offset));
  NoteDirect(node, data.size());  // after an error a part may have been written
  return written;
}

void Volume::Impl::NoteDirect(Node& node, uint64_t bytes) {
  // Counted after the write, so that a sync that began before cannot count as covering it.
  node.bulk_writes.fetch_add(1);
  {
    absl::MutexLock lock(&node.state);
    node.size_known = false;
  }
  space->Direct(bytes);
  if (node.bulk) bulk_bytes.Increment(bytes);
}

absl::StatusOr<Seq> Volume::Impl::SyncBulk(Node& node) {
  EndBulkOfNameless(node);  // no record of such a file may be issued any more
  if (!node.bulk) return 0;
  SALIUS_RETURN_IF_ERROR(EnsureIdLocked(node));
  SALIUS_RETURN_IF_ERROR(AwaitNode(node));
  SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, WriteFd(node));
  // Recovery skips the records that set the file's times, and no later sync has anything to do. So
  // its times go to the disk too, even when only the data was asked for.
  absl::Status synced = FsyncFd(fd->get());
  if (synced.ok()) synced = dir.CheckSynced();
  if (!synced.ok()) {
    Fail(synced);                                // never retried as if the data were clean
    return AsDataError(pipe.load()->SyncNow());  // fails now, and so the stream fails too
  }
  Seq last = 0, unwatched = 0;
  uint64_t unwatched_writes = 0;
  {
    absl::MutexLock lock(&node.state);
    last = std::max(node.last_seq, node.born_seq);
    unwatched = node.unwatched_seq;
    unwatched_writes = node.unwatched_writes;
  }
  if (unwatched_writes > node.synced_writes) {
    // There were direct writes through a descriptor that is closed: `fd` may not get their errors,
    // and no checkpoint need come, because they are in no record.
    SALIUS_RETURN_IF_ERROR(AsDataError(pipe.load()->SyncNow()));
  }
  const Seq checkpoint = pipe.load()->watermarks().checkpoint;
  Seq wait_for = 0;
  if (CreatedAfter(node, checkpoint) || unwatched > checkpoint) {
    // The disk may lack the file's name, names of the directories above it, or data of a record
    // whose write-back failed before `fd` was opened. A checkpoint covers all of these, and nothing
    // is left to replay.
    SALIUS_RETURN_IF_ERROR(AsDataError(pipe.load()->Checkpoint()));
  } else if (last > checkpoint) {
    RecordDraft draft;
    draft.op = Op::kOnDisk;
    draft.arg0 = last;
    SALIUS_ASSIGN_OR_RETURN(const RecordRef record, IssueOn(node, std::move(draft)));
    wait_for = record->seq();
  }
  EndBulk(node);
  return wait_for;
}

void Volume::Impl::EndBulkOfNameless(Node& node) {
  if (!node.bulk) return;
  {
    absl::MutexLock lock(&node.state);
    if (!node.orphan) return;
  }
  EndBulk(node);
}

void Volume::Impl::EndBulk(Node& node) {
  node.bulk = false;
  node.synced_writes = node.bulk_writes.load();
  node.unsynced_bytes = 0;
  bulk_synced.Increment();
  {
    absl::MutexLock lock(&bulk_mu);
    bulk_nodes.erase(&node);
  }
  table.Unpin(node);  // the caller holds a pin of its own
}

void Volume::Impl::NoteCreated(FileId id, Seq seq) {
  absl::MutexLock lock(&bulk_mu);
  created[id] = seq;
}

bool Volume::Impl::CreatedAfter(const Node& node, Seq checkpoint) {
  absl::MutexLock lock(&bulk_mu);
  const auto found = created.find(node.id.load());
  return found != created.end() && found->second > checkpoint;
}

std::vector<std::pair<PinnedNode, uint64_t>> Volume::Impl::BulkBeforeSync() {
  std::vector<std::pair<PinnedNode, uint64_t>> files;
  std::vector<std::pair<PinnedNode, uint64_t>> covered;
  RecordStream* const pipe_or_null = pipe.load();
  if (pipe_or_null == nullptr) return files;  // the session is just starting: no file is in use
  const Seq checkpoint = pipe_or_null->watermarks().checkpoint;
  table.DropCoveredIds(checkpoint);
  {
    absl::MutexLock lock(&bulk_mu);
    absl::erase_if(created, [&](const auto& entry) { return entry.second <= checkpoint; });
    for (const auto& [node, state] : bulk_nodes) {
      table.Pin(*node);
      const uint64_t writes = node->bulk_writes.load();
      const bool done = state.covered && state.covered_writes == writes;
      (done ? covered : files).emplace_back(PinnedNode(table, node), writes);
    }
  }
  for (auto& [node, writes] : covered) {
    // The lock is only tried: its holder may itself be waiting for this checkpoint.
    if (!node->stream.TryLock()) continue;
    Seq last = 0;
    {
      absl::MutexLock lock(&node->state);
      last = std::max(node->last_seq, node->born_seq);
    }
    if (node->bulk && node->bulk_writes.load() == writes && last <= checkpoint) EndBulk(*node);
    node->stream.Unlock();
  }
  return files;
}

void Volume::Impl::BulkAfterSync(const std::vector<std::pair<PinnedNode, uint64_t>>& before) {
  absl::MutexLock lock(&bulk_mu);
  for (const auto& [node, writes] : before) {
    const auto found = bulk_nodes.find(node.get());
    if (found != bulk_nodes.end()) found->second = {writes, true};
  }
}

}  // namespace salius
