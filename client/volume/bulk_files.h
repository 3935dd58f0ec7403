// Bulk files: past a limit of plain writes since a file's last sync, its data goes to the backing
// file at once and is not logged, because one sequential disk sync is then cheaper than copies over
// the network. The same path serves files without a name.
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
//
// A call for order (Order) syncs the bulk files of that moment. Later direct writes wait until the
// records from before are durable, because they would reach the disk first.
//
// Threads: any. Under the lock only a node's `state` is taken.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/volume/backing_dirs.h"
#include "client/volume/health.h"
#include "client/volume/issuer.h"
#include "client/volume/node.h"
#include "client/volume/node_fds.h"
#include "client/volume/stream_slot.h"
#include "common/ids.h"
#include "common/metrics.h"
#include "storage/backing.h"
#include "storage/space.h"

namespace salius {

class BulkFiles {
 public:
  // A file becomes bulk past `limit` bytes of unsynced plain writes; 0: never.
  BulkFiles(Backing& backing, NodeTable& table, const StreamSlot& stream, Issuer& issuer,
            NodeFds& fds, SpaceGuard& space, Health& health, const BackingDirs& dirs,
            uint64_t limit);
  BulkFiles(const BulkFiles&) = delete;
  BulkFiles& operator=(const BulkFiles&) = delete;

  // Returns true when no name is left, so that all changes go straight to the backing file. Then
  // every record of the node is applied.
  absl::StatusOr<bool> PrepareNameless(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Returns true when writes go straight to the backing file: no name is left, or the file is bulk.
  // Then every record of the node is applied, and those of a bulk file are in the applied prefix: a
  // recovery in the same life of the host replays what is not, over what went past the log.
  absl::StatusOr<bool> PrepareDirect(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Counts a plain write; past the limit the file becomes bulk.
  absl::Status CountUnsynced(Node& node, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  absl::Status DirectWrite(Node& node, int fd, uint64_t offset, std::string_view data)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Notes a change that went straight to the backing file, of `bytes` bytes of data.
  void NoteDirect(Node& node, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Syncs a bulk file and issues "on disk up to" if records of it may still be replayed. Returns
  // the seq to wait for; 0: none. Afterwards the file is not bulk.
  absl::StatusOr<Seq> Sync(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Orders the data of bulk files among the records. Earlier data is on the disk afterwards. Later
  // data reaches the disk only when every record that was issued before is durable.
  absl::Status Order() ABSL_LOCKS_EXCLUDED(mu_);
  // Remembers uncheckpointed creates: such a file's name may not be on disk.
  void NoteCreated(FileId id, Seq seq);
  // Ends bulk of a file without a name: nothing brings it back, so its data need not be synced, and
  // its space is free as soon as it is closed.
  void EndOfNameless(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);

  // The bulk files, and how many direct writes each had.
  using Writes = std::vector<std::pair<PinnedNode, uint64_t>>;
  // Called before and after the checkpoint's sync. Files that it covered stop being bulk once it is
  // noted.
  Writes BeforeCheckpointSync();
  void AfterCheckpointSync(const Writes& before);

 private:
  struct State {
    uint64_t covered_writes = 0;  // direct writes that a finished sync covers
    bool covered = false;
  };

  absl::Status EndPrediction(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  bool CreatedAfter(const Node& node, Seq checkpoint);
  // Waits until the node's records are in the applied prefix.
  absl::Status AwaitPrefix(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Waits until the records before the last Order() are durable.
  absl::Status AwaitOrder();
  // Returns the bulk files.
  std::vector<PinnedNode> Files() ABSL_LOCKS_EXCLUDED(mu_);
  void End(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);

  Backing& backing_;
  NodeTable& table_;
  const StreamSlot& stream_;
  Issuer& issuer_;
  NodeFds& fds_;
  SpaceGuard& space_;
  Health& health_;
  const BackingDirs& dirs_;
  const uint64_t limit_;
  Counter& bytes_;
  Counter& entered_;
  Counter& synced_;

  std::atomic<Seq> ordered_{0};  // the last record that was issued before an Order()

  absl::Mutex mu_;
  absl::flat_hash_map<Node*, State> nodes_ ABSL_GUARDED_BY(mu_);  // each pinned once
  absl::flat_hash_map<FileId, Seq> created_ ABSL_GUARDED_BY(mu_);
};

}  // namespace salius
