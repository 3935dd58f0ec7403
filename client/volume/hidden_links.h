// Files without a name. An O_TMPFILE has a hidden link, `.salius/open/<id>`, while its data counts
// on it: until it is closed and a checkpoint covers all of its records. A file whose last name was
// removed is an orphan: nothing is logged for it.
//
// Threads: any. Under the lock only a node's `state` is taken.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/volume/backing_dirs.h"
#include "client/volume/bulk_files.h"
#include "client/volume/chores.h"
#include "client/volume/health.h"
#include "client/volume/node.h"
#include "client/volume/stream_slot.h"
#include "common/ids.h"
#include "storage/backing.h"

namespace salius {

class HiddenLinks {
 public:
  HiddenLinks(Backing& backing, NodeTable& table, const StreamSlot& stream, BulkFiles& bulk,
              Health& health, const BackingDirs& dirs)
      : backing_(backing),
        table_(table),
        stream_(stream),
        bulk_(bulk),
        health_(health),
        dirs_(dirs) {}
  HiddenLinks(const HiddenLinks&) = delete;
  HiddenLinks& operator=(const HiddenLinks&) = delete;

  // Has the link of a file dropped once a checkpoint covers its records. Called at its last close,
  // for any file.
  void DropOf(Node& node);
  // Drops the links that the noted checkpoint covers by now. May wait for the disk, never for a
  // caller that uses the file: such a link is dropped by the thread for it, which waits.
  void DropCovered();
  // Has the links dropped that a checkpoint covers, which was just noted. Does not wait.
  void Checkpointed();
  // Ends the thread that drops links, after the chores that are left. Links that are covered
  // afterwards stay.
  void EndChores();
  // Returns the closed files with a link; not all of them where they are very many.
  std::vector<PinnedNode> ClosedFiles();

  // Returns fstat(2) of the backing file without the hidden link.
  absl::StatusOr<struct stat> StatOf(Node& node);
  // Notes that the last name of a node may be gone. `held`: its descriptor, since before.
  void UpdateOrphan(Node& node, const PathFd::Use& held);

 private:
  struct Link {
    PinnedNode node;
    Seq after = 0;  // issued when it was last closed
  };

  // Notes that the link is to be dropped when a checkpoint covers `after`.
  void Note(Node& node, Seq after);
  // Has the thread drop the links that are covered.
  void LookSoon();
  // Drops the links that are covered. `wait`: for the users of a file. Returns whether a link may
  // be covered that was passed over.
  bool Look(bool wait);
  // Drops the link of one file, unless it is open. Notes it again for records that are not covered,
  // and then returns false.
  bool Drop(Node& node, Seq checkpoint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);

  Backing& backing_;
  NodeTable& table_;
  const StreamSlot& stream_;
  BulkFiles& bulk_;
  Health& health_;
  const BackingDirs& dirs_;

  absl::Mutex mu_;
  absl::flat_hash_map<Node*, Link> links_ ABSL_GUARDED_BY(mu_);
  Seq next_ ABSL_GUARDED_BY(mu_) = UINT64_MAX;  // no `after` is less than this
  std::unique_ptr<Chores> chores_ ABSL_GUARDED_BY(mu_) = std::make_unique<Chores>();
};

}  // namespace salius
