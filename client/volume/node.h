// Nodes (files and directories in use), open handles, and the table that finds nodes.
//
// A node is alive while it is pinned. Each of these is a pin: a lookup of the front, an open
// handle, a record that is issued but not applied, "bulk until synced", and a call under way. The
// table keys nodes by inode number (all are on one device), so that hard links share a node. While
// a node lives its inode number is not reused: it has a name, or its O_PATH descriptor is kept open
// (PathFd::Keep).
//
// A node comes in two parts, because the kernel may cache millions of inodes of which few change:
// - Node itself: the identity, the pins, the locks, and the needs of a front and a reader.
// - NodeChanges: the needs of a changed file. It is made at the first use for a change, without a
//   lock, and stays until the node's end. Until then a reader sees `kUnchanged`: no record, no
//   extent, no descriptor. A file that is bulk or has unapplied records is pinned, so its part
//   stays.
//
// Locks of a node, in their order:
// - `names` (directories): held by a name operation from its check to its apply, over waits.
//   Several are taken in ascending order of address.
// - `stream`: gives the file's records their order. Held while a record is stamped, which may wait
//   for room in the window. Some operations hold it until their record is applied (Link, Remove,
//   Fallocate, attributes), and a bulk file's sync over its waits. Apply() never takes it.
// - `content`: Apply() holds it exclusively over "write the backing file, drop the extents", which
//   may wait for the disk. A reader does not wait for it. It reads the backing file, lays the
//   extents over it that it knew before, and reads again when a later record began to be applied
//   meanwhile. When that happens several times it takes the lock, shared, as soon as it is free.
// - `state`: guards the fields below; never held over a system call.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/volume/bindings.h"
#include "client/volume/contract.h"
#include "client/volume/extents.h"
#include "client/volume/memory_return.h"
#include "client/volume/prediction.h"
#include "common/ids.h"
#include "common/monotonic_cond.h"
#include "storage/backing.h"
#include "storage/path_fd.h"

namespace salius {

// The part of a node for a file that was changed or opened for writing.
struct NodeChanges {
  // The records of the file; guarded by the node's `state`.
  struct Records {
    Extents extents;  // of the data records that are not applied
    uint64_t unapplied = 0;       // records being issued or not yet applied
    uint64_t unapplied_data = 0;  // data records among them
    uint64_t size = 0;            // true while unapplied_data > 0 or size_known
    bool size_known = false;
    Seq last_seq = 0;      // last record that touched the file
    Seq applied_seq = 0;   // last of them that was applied; earlier ones may not be yet
    uint64_t data_time_ns = 0;  // the time of the last data record that was issued
    Seq applying_seq = 0;  // last data record whose apply has begun
    SharedFd rw_fd;        // O_RDWR; kept while a handle is open
    // Name records that change the node's attributes, and are being issued or not yet applied.
    uint64_t unapplied_names = 0;
    // The attributes when all of these records are applied, where callers do not wait for that
    // (Predictions); null: not needed, or the disk is right.
    std::unique_ptr<Prediction> prediction;
    KeptCtime kept_ctime;   // left by the last prediction
    uint32_t entering = 0;  // records that were issued and may not be in `prediction` yet
    bool settling = false;  // a thread gives the disk the times of `prediction`
    uint64_t applies = 0;   // counts applies that change attributes
    // The file is bulk: its attributes change without records, so none is predicted.
    bool direct = false;
    Seq name_seq = 0;     // last name record that an fsync must cover
    Seq removal_seq = 0;  // the record that removes the last name; 0: none
    // Records up to this one may have been applied before rw_fd was opened: when their data could
    // not be written back, an fsync of rw_fd may not report it.
    Seq unwatched_seq = 0;
    uint64_t unwatched_writes = 0;  // the same of `bulk_writes`
  };
  // How the file is written; guarded by the node's `stream`.
  struct Writing {
    // Writes go to the backing file at once and are not logged until the next sync.
    bool bulk = false;
    uint64_t synced_writes = 0;        // of `bulk_writes`: a sync covered them
    uint64_t unsynced_bytes = 0;       // plain writes since the last sync
    uint64_t plain_writes = 0;         // their number since the last fsync
    uint64_t plain_writes_before = 0;  // their number before that fsync
    uint64_t checked_size = 0;         // the file system can hold this size
    Seq in_prefix = 0;                 // its records up to this one are in the applied prefix
  };

  Records records;
  Writing writing;
  // Counts direct writes (bulk): a sync that began before a count cannot have covered that write.
  std::atomic<uint64_t> bulk_writes{0};
  // How many names a directory's index surely takes before its size is looked up again.
  std::atomic<int64_t> names_left{0};
};

class Node {
 public:
  // `path` is what a PathFd is made of: a descriptor, or the file's handle.
  template <typename Path>
  Node(Path path, const struct stat& st, Seq issued, uint64_t number, PathFdCache& cache)
      : generation(number),
        path_fd(std::move(path), st.st_dev, cache),
        ino(st.st_ino),
        born_seq(issued),
        type(st.st_mode & S_IFMT) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() { delete changes_.load(); }

  bool is_dir() const { return S_ISDIR(type); }
  bool is_regular() const { return S_ISREG(type); }
  dev_t dev() const { return path_fd.dev(); }

  // Unique among all nodes of the session; the root's is 0. A file handle that a client keeps (NFS)
  // must not lead to a later node in the same memory.
  const uint64_t generation;
  const PathFd path_fd;  // O_PATH | O_NOFOLLOW
  const ino_t ino;
  // The last seq issued when the node was made. Records of an earlier node of the same file are not
  // above it, and all of them are applied.
  const Seq born_seq;

  // The front's: 0 at first, kept as long as the node lives, never used by the volume. (The FUSE
  // front counts opens in the word and keeps how the inode is cached; the others are NodeIds'.)
  std::atomic<uint64_t> front_word{0};
  uint64_t front_id = 0;
  uint64_t front_lookups = 0;
  // kNoFileId until the first change; then read from the xattr or given by adoption, under
  // `stream`.
  std::atomic<FileId> id{kNoFileId};

  absl::Mutex names;
  absl::Mutex stream ABSL_ACQUIRED_AFTER(names);
  absl::Mutex content ABSL_ACQUIRED_AFTER(stream);
  absl::Mutex state ABSL_ACQUIRED_AFTER(content);

  // Return the part for changes, made when there is none; `seen`: as it is, or kUnchanged.
  NodeChanges::Records& records() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state) { return changes().records; }
  const NodeChanges::Records& seen_records() const ABSL_SHARED_LOCKS_REQUIRED(state) {
    return seen().records;
  }
  NodeChanges::Writing& writing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(stream) {
    return changes().writing;
  }
  const NodeChanges::Writing& seen_writing() const ABSL_SHARED_LOCKS_REQUIRED(stream) {
    return seen().writing;
  }
  std::atomic<uint64_t>& bulk_writes() { return changes().bulk_writes; }
  std::atomic<int64_t>& names_left() { return changes().names_left; }
  // Returns whether the file has the part for changes.
  bool was_changed() const { return changes_.load(std::memory_order_acquire) != nullptr; }

  const mode_t type;  // S_IFMT bits
  uint32_t handles ABSL_GUARDED_BY(state) = 0;
  std::atomic<bool> identified{false};  // `id` is final
  // Whether the directory takes any name that passes the checks (Backing::IsPlainDir).
  enum : uint8_t { kUnknown, kPlain, kNotPlain };
  std::atomic<uint8_t> plain{kUnknown};
  // `.salius/open/<id>` exists, or is just being removed (O_TMPFILE). The st_nlink that callers see
  // does not count it.
  bool hidden_link ABSL_GUARDED_BY(state) = false;
  bool dropping_link ABSL_GUARDED_BY(state) = false;  // it is just being removed
  // No name is left: changes go straight through, nothing is logged.
  bool orphan ABSL_GUARDED_BY(state) = false;
  // Its last name is being removed, and data was given up that no handle could read: it cannot be
  // opened any more (LaneSink).
  bool given_up ABSL_GUARDED_BY(state) = false;

 private:
  friend class NodeTable;
  static const NodeChanges& kUnchanged;

  NodeChanges& changes() {
    NodeChanges* const made = changes_.load(std::memory_order_acquire);
    return made != nullptr ? *made : MakeChanges();
  }
  const NodeChanges& seen() const {
    const NodeChanges* const made = changes_.load(std::memory_order_acquire);
    return made != nullptr ? *made : kUnchanged;
  }
  NodeChanges& MakeChanges();

  std::atomic<NodeChanges*> changes_{nullptr};  // owned
  std::atomic<uint64_t> pins_{0};  // 0 -> 1 and 1 -> 0 only under the table's lock
};

// A malloc block of 192 bytes holds 184.
static_assert(sizeof(Node) <= 184);

struct DirBatch;  // read_dir.cc

// An open file or directory. The front gives it back with
// OpenFiles::Release.
class Handle {
 public:
  Handle(Node& n, int open_flags) : node(n), flags(open_flags) {}

  Node& node;
  const int flags;           // open(2)'s
  SharedFd fd;               // open for reading, or for reading and writing
  // Synchronous calls return at once under commit=external: the caller's outputs are gated.
  std::atomic<bool> early{false};
  absl::Mutex dir_position;  // held over a seek and the read that follows it (directories)
  // The entries read last; the position of `fd` is their end. Empty: it is anywhere.
  std::shared_ptr<const DirBatch> dir_batch ABSL_GUARDED_BY(dir_position);
  // The names that were not applied when the listing began; null: none.
  std::shared_ptr<const Bindings::Snapshot> dir_pending ABSL_GUARDED_BY(dir_position);

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
      : backing_(backing),
        issued_(std::move(issued)),
        path_fds_(backing),
        memory_(kWorthReturning, kCalm, [this] { GiveMemoryBack(); }) {}
  // Destroys every node that is left.
  ~NodeTable();

  // Makes the root's node, the first one, which stays. `path_fd`: O_PATH.
  absl::Status MakeRoot(BackingFd path_fd);
  Node& root() const { return *root_; }

  // Returns the node of the object that `path_fd` (O_PATH) is open on, made when there is none.
  absl::StatusOr<PinnedNode> Intern(BackingFd path_fd);
  // The same for an object whose attributes are wanted and that may never be used otherwise: a new
  // node keeps no descriptor if it is no directory and can be opened again.
  struct Listed {
    PinnedNode node;
    struct stat attr {};
    // The node was made just now, and no record of any file was stamped since `issued_before`: if
    // no node of the file was in use then, the attributes are as new as the node.
    bool current = false;
  };
  absl::StatusOr<Listed> InternListed(BackingFd path_fd, Seq issued_before);
  // Returns the node of the object with this inode number; empty when none is in use.
  PinnedNode FindInode(ino_t ino);
  // Returns the last seq issued.
  Seq issued() const { return issued_(); }
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
  // Some two megabytes of nodes, and the time without a forget after which they are given back.
  static constexpr uint64_t kWorthReturning = 10'000;
  static constexpr std::chrono::milliseconds kCalm{200};

  void GiveMemoryBack() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the node of the object with attributes `st`. `make(old)`, called under the lock,
  // returns the node: `old`, or a new one when that is null.
  template <typename Make>
  absl::StatusOr<PinnedNode> Enter(const struct stat& st, const Make& make)
      ABSL_LOCKS_EXCLUDED(mu_);

  Backing& backing_;
  const std::function<Seq()> issued_;
  PathFdCache path_fds_;  // outlives the nodes
  Node* root_ = nullptr;
  absl::Mutex mu_;
  uint64_t made_ ABSL_GUARDED_BY(mu_) = 0;  // nodes so far; the root is the first
  dev_t dev_ ABSL_GUARDED_BY(mu_) = 0;      // of all of them
  absl::flat_hash_map<ino_t, Node*> by_inode_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<FileId, Node*> by_id_ ABSL_GUARDED_BY(mu_);
  struct Left {  // the file that had an id, and the last seq that may name it
    std::pair<dev_t, ino_t> file;
    Seq seq = 0;
  };
  absl::flat_hash_map<FileId, Left> left_ ABSL_GUARDED_BY(mu_);  // of nodes that were destroyed
  uint64_t deleting_ ABSL_GUARDED_BY(mu_) = 0;
  MonotonicCond deleted_;  // deleting_ is 0
  MemoryReturn memory_;  // ends first: its thread uses the rest
};

}  // namespace salius
