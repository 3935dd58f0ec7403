#include "client/volume/bulk_files.h"

#include <algorithm>
#include <thread>

#include "common/check.h"
#include "log/record.h"

namespace salius {

BulkFiles::BulkFiles(Backing& backing, NodeTable& table, const StreamSlot& stream, Issuer& issuer,
                     NodeFds& fds, SpaceGuard& space, Health& health, const BackingDirs& dirs,
                     uint64_t limit)
    : backing_(backing),
      table_(table),
      stream_(stream),
      issuer_(issuer),
      fds_(fds),
      space_(space),
      health_(health),
      dirs_(dirs),
      limit_(limit),
      bytes_(GetCounter("salius_bulk_bytes_total", "Bytes written past the log to bulk files")),
      entered_(GetCounter("salius_bulk_transitions_total", "Files that became bulk or stopped",
                          {{"to", "bulk"}})),
      synced_(GetCounter("salius_bulk_transitions_total", "Files that became bulk or stopped",
                         {{"to", "logged"}})) {}

absl::StatusOr<bool> BulkFiles::PrepareNameless(Node& node) {
  {
    absl::MutexLock lock(&node.state);
    if (!node.orphan && node.seen_records().removal_seq == 0) return false;
  }
  SALIUS_RETURN_IF_ERROR(issuer_.AwaitRemoval(node));
  SALIUS_RETURN_IF_ERROR(issuer_.AwaitNode(node));
  return true;
}

absl::StatusOr<bool> BulkFiles::PrepareDirect(Node& node) {
  if (!node.seen_writing().bulk) return PrepareNameless(node);
  SALIUS_RETURN_IF_ERROR(issuer_.AwaitNode(node));
  SALIUS_RETURN_IF_ERROR(AwaitPrefix(node));
  SALIUS_RETURN_IF_ERROR(AwaitOrder());
  return true;
}

absl::Status BulkFiles::AwaitPrefix(Node& node) {
  Seq last = 0;
  {
    absl::MutexLock lock(&node.state);
    last = node.seen_records().last_seq;
  }
  NodeChanges::Writing& writing = node.writing();
  if (last <= writing.in_prefix) return absl::OkStatus();
  issuer_.CountWait();
  SALIUS_RETURN_IF_ERROR(AsDataError(stream_->WaitApplied(last)));
  writing.in_prefix = last;
  return absl::OkStatus();
}

absl::Status BulkFiles::AwaitOrder() {
  const Seq ordered = ordered_.load();
  if (ordered == 0 || ordered <= stream_->watermarks().durable) return absl::OkStatus();
  issuer_.CountWait();
  return AsDataError(stream_->WaitDurable(ordered));
}

absl::Status BulkFiles::Order() {
  if (limit_ == 0) return absl::OkStatus();
  for (const PinnedNode& file : Files()) {
    Node& node = *file;
    absl::MutexLock lock(&node.stream);
    SALIUS_RETURN_IF_ERROR(Sync(node).status());
  }
  // A concurrent call may have stored a later one.
  const Seq issued = stream_.issued();
  Seq before = ordered_.load();
  while (before < issued && !ordered_.compare_exchange_weak(before, issued)) {
  }
  return absl::OkStatus();
}

std::vector<PinnedNode> BulkFiles::Files() {
  std::vector<PinnedNode> files;
  absl::MutexLock lock(&mu_);
  for (const auto& [node, state] : nodes_) {
    table_.Pin(*node);
    files.emplace_back(table_, node);
  }
  return files;
}

absl::Status BulkFiles::CountUnsynced(Node& node, uint64_t bytes) {
  NodeChanges::Writing& writing = node.writing();
  writing.unsynced_bytes += bytes;
  if (writing.bulk || limit_ == 0 || writing.unsynced_bytes <= limit_) return absl::OkStatus();
  {
    absl::MutexLock lock(&node.state);
    if (node.orphan) return absl::OkStatus();  // direct already
  }
  SALIUS_RETURN_IF_ERROR(EndPrediction(node));
  writing.bulk = true;
  table_.Pin(node);
  entered_.Increment();
  absl::MutexLock lock(&mu_);
  nodes_[&node] = State();
  return absl::OkStatus();
}

// From now on the file's attributes change without records.
absl::Status BulkFiles::EndPrediction(Node& node) {
  while (true) {
    SALIUS_RETURN_IF_ERROR(issuer_.AwaitNode(node));
    SALIUS_RETURN_IF_ERROR(health_.Data());  // a prediction whose end failed stays
    {
      absl::MutexLock lock(&node.state);
      NodeChanges::Records& records = node.records();
      if (records.unapplied_names == 0 && records.prediction == nullptr) {
        records.direct = true;
        return absl::OkStatus();
      }
    }
    std::this_thread::yield();  // a rename of the file is just being issued
  }
}

absl::Status BulkFiles::DirectWrite(Node& node, int fd, uint64_t offset, std::string_view data) {
  const absl::Status written = backing_.Pwrite(fd, data, offset);
  NoteDirect(node, data.size());  // after an error a part may have been written
  return written;
}

void BulkFiles::NoteDirect(Node& node, uint64_t bytes) {
  // Counted after the write, so that a sync that began before cannot count as covering it.
  node.bulk_writes().fetch_add(1);
  {
    absl::MutexLock lock(&node.state);
    node.records().size_known = false;
  }
  space_.Direct(bytes);
  if (node.seen_writing().bulk) bytes_.Increment(bytes);
}

absl::StatusOr<Seq> BulkFiles::Sync(Node& node) {
  EndOfNameless(node);  // no record of such a file may be issued any more
  if (!node.seen_writing().bulk) return 0;
  SALIUS_RETURN_IF_ERROR(issuer_.EnsureIdLocked(node));
  SALIUS_RETURN_IF_ERROR(issuer_.AwaitNode(node));
  SALIUS_ASSIGN_OR_RETURN(const SharedFd fd, fds_.ForWriting(node));
  // Recovery skips the records that set the file's times, and no later sync has anything to do. So
  // its times go to the disk too, even when only the data was asked for.
  absl::Status synced = backing_.Fsync(fd->get());
  if (synced.ok()) synced = dirs_.CheckSynced();
  if (!synced.ok()) {
    health_.Fail(synced);                    // never retried as if the data were clean
    return AsDataError(stream_->SyncNow());  // fails now, and so the stream fails too
  }
  Seq last = 0, unwatched = 0;
  uint64_t unwatched_writes = 0;
  {
    absl::MutexLock lock(&node.state);
    const NodeChanges::Records& records = node.seen_records();
    last = std::max(records.last_seq, node.born_seq);
    unwatched = records.unwatched_seq;
    unwatched_writes = records.unwatched_writes;
  }
  if (unwatched_writes > node.writing().synced_writes) {
    // There were direct writes through a descriptor that is closed: `fd` may not get their errors,
    // and no checkpoint need come, because they are in no record.
    SALIUS_RETURN_IF_ERROR(AsDataError(stream_->SyncNow()));
  }
  const Seq checkpoint = stream_->watermarks().checkpoint;
  Seq wait_for = 0;
  if (CreatedAfter(node, checkpoint) || unwatched > checkpoint) {
    // The disk may lack the file's name, names of the directories above it, or data of a record
    // whose write-back failed before `fd` was opened. A checkpoint covers all of these, and nothing
    // is left to replay.
    SALIUS_RETURN_IF_ERROR(AsDataError(stream_->Checkpoint()));
  } else if (last > checkpoint) {
    RecordDraft draft;
    draft.op = Op::kOnDisk;
    draft.arg0 = last;
    SALIUS_ASSIGN_OR_RETURN(const RecordRef record, issuer_.IssueOn(node, std::move(draft)));
    wait_for = record->seq();
  }
  End(node);
  return wait_for;
}

void BulkFiles::EndOfNameless(Node& node) {
  if (!node.seen_writing().bulk) return;
  {
    absl::MutexLock lock(&node.state);
    if (!node.orphan) return;
  }
  End(node);
}

void BulkFiles::End(Node& node) {
  NodeChanges::Writing& writing = node.writing();
  writing.bulk = false;
  writing.synced_writes = node.bulk_writes().load();
  writing.unsynced_bytes = 0;
  synced_.Increment();
  {
    absl::MutexLock lock(&node.state);
    node.records().direct = false;
  }
  {
    absl::MutexLock lock(&mu_);
    nodes_.erase(&node);
  }
  table_.Unpin(node);  // the caller holds a pin of its own
}

void BulkFiles::NoteCreated(FileId id, Seq seq) {
  absl::MutexLock lock(&mu_);
  created_[id] = seq;
}

bool BulkFiles::CreatedAfter(const Node& node, Seq checkpoint) {
  absl::MutexLock lock(&mu_);
  const auto found = created_.find(node.id.load());
  return found != created_.end() && found->second > checkpoint;
}

BulkFiles::Writes BulkFiles::BeforeCheckpointSync() {
  Writes files;
  Writes covered;
  RecordStream* const stream = stream_.get();
  if (stream == nullptr) return files;  // the session is just starting: no file is in use
  const Seq checkpoint = stream->watermarks().checkpoint;
  table_.DropCoveredIds(checkpoint);
  {
    absl::MutexLock lock(&mu_);
    absl::erase_if(created_, [&](const auto& entry) { return entry.second <= checkpoint; });
    for (const auto& [node, state] : nodes_) {
      table_.Pin(*node);
      const uint64_t writes = node->bulk_writes().load();
      const bool done = state.covered && state.covered_writes == writes;
      (done ? covered : files).emplace_back(PinnedNode(table_, node), writes);
    }
  }
  for (auto& [node, writes] : covered) {
    // The lock is only tried: its holder may itself be waiting for this checkpoint.
    if (!node->stream.TryLock()) continue;
    Seq last = 0;
    {
      absl::MutexLock lock(&node->state);
      last = std::max(node->seen_records().last_seq, node->born_seq);
    }
    const bool same = node->bulk_writes().load() == writes;
    if (node->seen_writing().bulk && same && last <= checkpoint) End(*node);
    node->stream.Unlock();
  }
  return files;
}

void BulkFiles::AfterCheckpointSync(const Writes& before) {
  absl::MutexLock lock(&mu_);
  for (const auto& [node, writes] : before) {
    const auto found = nodes_.find(node.get());
    if (found != nodes_.end()) found->second = {writes, true};
  }
}

}  // namespace salius
