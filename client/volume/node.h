// Nodes (files and directories in use), open handles, and the table that finds nodes.
//
// A node is alive while it is pinned. Each of these is a pin: a lookup of the front, an open
// handle, a record that is issued but not applied, "bulk until synced", and a call under way. The
// table keys nodes by backing (device, inode), so that hard links share a node. While a node lives
// its inode number is not reused: it has a name, or its O_PATH descriptor is kept open
// (PathFd::Keep).
//
// Locks of a node, in their order:
// - `names` (directories): held by a name operation from its check to its apply, over waits.
//   Several are taken in ascending order of address.
// - `stream`: gives the file's records their order. Held while a record is stamped, which may wait
//   for room in the window. Some operations hold it until their record is applied (Link, Remove,
//   Fallocate, attributes), and a bulk file's sync over its waits. Apply() never takes it.
// - `content`: Apply() holds it exclusively over "write the backing file, drop the patch", which
//   may wait for the disk. A reader does not wait for it. It reads the backing file, lays the
//   patches over it that it knew before, and reads again when a later record began to be applied
//   meanwhile. When that happens several times it takes the lock, shared, as soon as it is free.
// - `state`: guards the fields below; never held over a system call.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/volume/contract.h"
#include "client/volume/patches.h"
#include "common/ids.h"
#include "common/monotonic_cond.h"
#include "storage/backing.h"
#include "storage/path_fd.h"

namespace salius {

class Node {
 public:
  Node(BackingFd path, const struct stat& st, Seq issued, uint64_t number, PathFdCache& cache)
      : generation(number),
        path_fd(std::move(path), st.st_dev, cache),
        dev(st.st_dev),
        ino(st.st_ino),
        type(st.st_mode & S_IFMT),
        born_seq(issued) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  bool is_dir() const { return S_ISDIR(type); }
  bool is_regular() const { return S_ISREG(type); }

  // Unique among all nodes of the session; the root's is 0. A file handle that a client keeps (NFS)
  // must not lead to a later node in the same memory.
  const uint64_t generation;
  const PathFd path_fd;  // O_PATH | O_NOFOLLOW
  const dev_t dev;
  const ino_t ino;
  const mode_t type;  // S_IFMT bits
  // The last seq issued when the node was made. Records of an earlier node of the same file are not
  // above it, and all of them are applied.
  const Seq born_seq;

  // The front's: 0 at first, kept as long as the node lives, never used by the volume. (The FUSE
  // front counts opens there and keeps how the inode is cached.)
  std::atomic<uint64_t> front_word{0};
  // kNoFileId until the first change; then read from the xattr or given by adoption, under
  // `stream`.
  std::atomic<FileId> id{kNoFileId};
  std::atomic<bool> identified{false};  // `id` is final
  // Counts direct writes (bulk): a sync that began before a count cannot have covered that write.
  std::atomic<uint64_t> bulk_writes{0};

  absl::Mutex names;
  absl::Mutex stream ABSL_ACQUIRED_AFTER(names);
  absl::Mutex content ABSL_ACQUIRED_AFTER(stream);
  absl::Mutex state ABSL_ACQUIRED_AFTER(content);

  // Writes go to the backing file at once and are not logged until the next sync.
  bool bulk ABSL_GUARDED_BY(stream) = false;
  uint64_t synced_writes ABSL_GUARDED_BY(stream) = 0;   // of `bulk_writes`: a sync covered them
  uint64_t unsynced_bytes ABSL_GUARDED_BY(stream) = 0;  // plain writes since the last sync
  uint64_t plain_writes ABSL_GUARDED_BY(stream) = 0;    // their number since the last fsync
  uint64_t plain_writes_before ABSL_GUARDED_BY(stream) = 0;  // their number before that fsync
  uint64_t checked_size ABSL_GUARDED_BY(stream) = 0;         // the file system can hold this size

  // `.salius/open/<id>` exists, or is just being removed (O_TMPFILE). The st_nlink that callers see
  // does not count it.
  bool hidden_link ABSL_GUARDED_BY(state) = false;
  // No name is left: changes go straight through, nothing is logged.
  bool orphan ABSL_GUARDED_BY(state) = false;

  PatchList patches ABSL_GUARDED_BY(state);
  uint64_t unapplied ABSL_GUARDED_BY(state) = 0;       // records being issued or not yet applied
  uint64_t unapplied_data ABSL_GUARDED_BY(state) = 0;  // data records among them
  uint64_t size ABSL_GUARDED_BY(state) = 0;  // true while unapplied_data > 0 or size_known
  bool size_known ABSL_GUARDED_BY(state) = false;
  Seq last_seq ABSL_GUARDED_BY(state) = 0;      // last record that touched the file
  Seq applied_seq ABSL_GUARDED_BY(state) = 0;   // last of them that was applied
  Seq applying_seq ABSL_GUARDED_BY(state) = 0;  // last data record whose apply has begun
  uint64_t handles ABSL_GUARDED_BY(state) = 0;
  SharedFd rw_fd ABSL_GUARDED_BY(state);  // O_RDWR; kept while records or handles need it
  // Records up to this one were applied before rw_fd was opened: when their data could not be
  // written back, an fsync of rw_fd may not report it.
  Seq unwatched_seq ABSL_GUARDED_BY(state) = 0;
  uint64_t unwatched_writes ABSL_GUARDED_BY(state) = 0;  // the same of `bulk_writes`

 private:
  friend class NodeTable;
  std::atomic<uint64_t> pins_{0};  // 0 -> 1 and 1 -> 0 only under the table's lock
};

struct DirBatch;  // read_dir.cc

// An open file or directory. The front gives it back with
// OpenFiles::Release.
class Handle {
 public:
  Handle(Node& n, int open_flags) : node(n), flags(open_flags) {}

  Node& node;
  const int flags;           // open(2)'s
  SharedFd fd;               // open for reading, or for reading and writing
  absl::Mutex dir_position;  // held over a seek and the read that follows it (directories)
  // The entries read last; the position of `fd` is their end. Empty: it is anywhere.
  std::shared_ptr<const DirBatch> dir_batch ABSL_GUARDED_BY(dir_position);

  Contract contract() const;  // returns what `flags` promise for every write
  bool writable() const;
};

// A node held by one pin for as long as this lives.
class NodeTable;
class PinnedNode {
 public:
  PinnedNode() = default;
  PinnedNode(NodeTable& table, Node* node) : table_(&table), node_(node) {}
  PinnedNode(PinnedNode&& other) noexcept
      : table_(other.table_), node_(std::exchange(other.node_, nullptr)) {}
  PinnedNode& operator=(PinnedNode&& other) noexcept;
  ~PinnedNode() { Reset(); }

  Node* get() const { return node_; }
  Node& operator*() const { return *node_; }
  Node* operator->() const { return node_; }
  explicit operator bool() const { return node_ != nullptr; }
  // Gives the pin away (to the front, as a lookup).
  Node* Release() { return std::exchange(node_, nullptr); }
  void Reset();

 private:
  NodeTable* table_ = nullptr;
  Node* node_ = nullptr;
};

class NodeTable {
 public:
  // `backing` has the files, and outlives this. `issued` returns the last seq issued. It is called
  // under the table's lock: an earlier node of a file may go until that is taken, and no record of
  // a destroyed node comes after it.
  NodeTable(Backing& backing, std::function<Seq()> issued)
      : backing_(backing), issued_(std::move(issued)), path_fds_(backing) {}
  // Destroys every node that is left.
  ~NodeTable();

  // Makes the root's node, the first one, which stays. `path_fd`: O_PATH.
  absl::Status MakeRoot(BackingFd path_fd);
  Node& root() const { return *root_; }

  // Returns the node of the object that `path_fd` (O_PATH) is open on, made when there is none.
  absl::StatusOr<PinnedNode> Intern(BackingFd path_fd);
  // Returns the node with this id; empty when none is in use.
  PinnedNode Find(FileId id);
  // Enters the id of a node. Returns false, and changes nothing, when the id is another file's (a
  // copied xattr): one whose node is in use, or was and may have records that no checkpoint covers.
  bool SetId(Node& node, FileId id);
  // Takes the id back: the adoption failed.
  void ClearId(Node& node);

  void Pin(Node& node) { node.pins_.fetch_add(1, std::memory_order_relaxed); }
  // Takes `count` pins off; the last one destroys the node.
  void Unpin(Node& node, uint64_t count = 1);
  // Forgets the ids of destroyed nodes whose records a checkpoint at `checkpoint` covers.
  void DropCoveredIds(Seq checkpoint);
  // Waits until the nodes whose last pin is gone are destroyed, and so the disk space of removed
  // files is free; for a limited time.
  void AwaitDeleted();

  // Returns the descriptors of all nodes; to be configured before there are many.
  PathFdCache& path_fds() { return path_fds_; }

 private:
  Backing& backing_;
  const std::function<Seq()> issued_;
  PathFdCache path_fds_;  // outlives the nodes
  Node* root_ = nullptr;
  absl::Mutex mu_;
  uint64_t made_ ABSL_GUARDED_BY(mu_) = 0;  // nodes so far; the root is the first
  dev_t dev_ ABSL_GUARDED_BY(mu_) = 0;      // of all of them
  absl::flat_hash_map<std::pair<dev_t, ino_t>, Node*> by_inode_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<FileId, Node*> by_id_ ABSL_GUARDED_BY(mu_);
  struct Left {  // the file that had an id, and the last seq that may name it
    std::pair<dev_t, ino_t> file;
    Seq seq = 0;
  };
  absl::flat_hash_map<FileId, Left> left_ ABSL_GUARDED_BY(mu_);  // of nodes that were destroyed
  uint64_t deleting_ ABSL_GUARDED_BY(mu_) = 0;
  MonotonicCond deleted_;  // deleting_ is 0
};

}  // namespace salius
