// The inside of Volume: what its source files share.
//
//   volume.cc        open, close, lookups; Volume's methods that only pass on
//   volume_apply.cc  the stream's sink: Apply, SyncApplied
//   volume_issue.cc  stamping: ids and adoption, patches, results, cancelling
//   volume_files.cc  open files: read, write, fsync, fallocate, copy
//   bulk.cc          writes that go past the log, and their sync (I3)
//   attr.cc          attributes and extended attributes
//   names.cc         create, link, unlink; names_rename.cc rename
//   names_acl.*      what a new object inherits
//   volume_dirs.cc   reading directories
//
// Locks: see node.h. `failure_mu` is a leaf; under `bulk_mu` only a node's `state` is taken.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/volume/chores.h"
#include "client/volume/node.h"
#include "client/volume/volume.h"
#include "common/file.h"
#include "common/metrics.h"
#include "log/record.h"
#include "storage/backing.h"
#include "storage/file_fds.h"
#include "storage/space.h"

namespace salius {

struct Volume::Impl final : public ApplySink {
  // The backing object under a name, while its directory's `names` is held.
  struct Child {
    PinnedNode node;
    struct stat st {};
  };

  Impl(VolumeDir volume_dir, VolumeOptions volume_options);
  ~Impl() override;

  // ---- volume.cc
  // Opens the volume's own descriptors, removes leftovers, and makes the root node. `descriptors`:
  // how many this process may have.
  absl::Status Prepare(uint64_t descriptors);
  // Removes an object that is not needed from .salius/tmp or .salius/open.
  static void RemoveLeftover(int dirfd, const std::string& name);
  absl::StatusOr<Entry> Lookup(Node& node, std::string_view name);
  // Returns the node of the object that `fd` (O_PATH) is open on.
  absl::StatusOr<PinnedNode> Intern(UniqueFd fd);
  // Return OK while changes are allowed; EIO for data, EROFS for names (I8).
  absl::Status DataHealth() const;
  absl::Status NameHealth() const;
  // Turns the volume read-only: a sync outside the stream failed.
  void Fail(const absl::Status& why);
  absl::Status Close();
  absl::StatusOr<struct statvfs> StatFs();

  // ---- volume_apply.cc
  absl::StatusOr<size_t> Apply(absl::Span<const RecordRef> records) override;
  absl::Status SyncApplied() override;
  absl::Status SyncBacking();
  absl::Status ApplyToFile(Node& node, const RecordRef& record);
  // Applies writes that follow one another in the file, with one call.
  absl::Status ApplyWrites(Node& node, absl::Span<const RecordRef> records);
  void ApplyName(const RecordRef& record);
  absl::Status ApplyLinkOrUnlink(const RecordHeader& header, std::string_view body);
  absl::StatusOr<UniqueFd> ApplyCreate(const RecordHeader& header, std::string_view body);
  absl::Status ApplyRename(std::string_view body);
  absl::Status LabelWhiteout(int dirfd, const RenameBody& rename);
  // Notes that data records up to `last` are about to change the backing file: for readers.
  static void NoteApplying(Node& node, Seq last);
  // Notes that the last `records` records of a node, the last of which is `last`, were applied.
  void Finish(Node& node, Seq last, size_t records, size_t data_records);
  // Notes that the last name of a node may be gone. `held`: its descriptor, since before.
  void UpdateOrphan(Node& node, const PathFd::Use& held);

  // ---- volume_issue.cc
  // Gives the node an id when it has none (adopting it) and enters it in the table.
  absl::Status EnsureId(Node& node) ABSL_LOCKS_EXCLUDED(node.stream);
  absl::Status EnsureIdLocked(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  absl::StatusOr<FileId> NewId();
  // Stamps any record, and counts the space that it may need. Waits for room in the window.
  absl::StatusOr<RecordRef> Issue(RecordDraft draft);
  // Stamps a record of the node's own stream (data, attributes), with the file's id. Pins the node
  // until the record is applied, and adds a data record to its patches.
  absl::StatusOr<RecordRef> IssueOn(Node& node, RecordDraft draft)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Stamps a name record, with a result.
  absl::StatusOr<RecordRef> IssueName(RecordDraft draft);
  // Waits until a record with a result is durable and applied, and returns the result. When that is
  // an error a cancel record is made durable first. EIO when the volume fails meanwhile: a recovery
  // may find the change made or not.
  absl::StatusOr<UniqueFd> AwaitResult(const RecordRef& record);
  // Waits until `seq` is durable and applied; the waiting thread helps.
  absl::Status AwaitApplied(Seq seq);
  // Waits until no record of the node is unapplied.
  absl::Status AwaitNode(Node& node);
  // Waits likewise for at most kBriefNs, without applying anything: DEADLINE_EXCEEDED after that. A
  // call that can answer from memory must not wait for a disk that hangs.
  static constexpr int64_t kBriefNs = 40'000'000;
  absl::Status AwaitNodeBriefly(Node& node);
  // Returns the size with patches.
  absl::StatusOr<uint64_t> LogicalSize(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Returns the descriptor for writing, opened when there is none. The caller needs a pin that
  // outlives the use.
  absl::StatusOr<SharedFd> WriteFd(Node& node, uid_t opener = FileFds::kRoot);
  void CloseIdle(Node& node);  // closes rw_fd when no record or handle needs it

  // ---- volume_files.cc
  // Returns ENFILE when open files have as many descriptors as they may. To be called before a file
  // is opened for a caller, and before it is made.
  absl::Status RoomForFile(uid_t user);
  absl::Status NoRoom(uid_t user);
  absl::StatusOr<Handle*> OpenFile(Node& node, int flags, uid_t opener);
  // Opens a file after RoomForFile.
  absl::StatusOr<Handle*> OpenNode(Node& node, int flags, uid_t opener);
  absl::StatusOr<Handle*> OpenDir(Node& node, uid_t opener);
  void AddHandle(Handle& handle);
  absl::Status OpenBacking(Handle& handle, uid_t opener);
  void Release(Handle* handle);
  void DropHiddenLink(Node& node);  // called at the last close of an O_TMPFILE
  // Notes that the link is to be dropped when a checkpoint covers `after`.
  void NoteHiddenLink(Node& node, Seq after);
  // Returns the files with such links that are closed; not all of them where they are very many.
  std::vector<PinnedNode> ClosedNamelessFiles();
  // Drops the links that the noted checkpoint covers by now. May wait for the disk.
  void DropCoveredLinks();
  // Drops the link of one file, unless it is open. Notes it again for records that are not covered.
  void DropCoveredLink(Node& node, Seq checkpoint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  absl::Status Read(Handle& handle, uint64_t offset, size_t size, std::string* out);
  // Reads once. Returns false when a record that it did not know began to be applied meanwhile.
  absl::StatusOr<bool> ReadOnce(Handle& handle, uint64_t offset, size_t size, std::string* out);
  absl::StatusOr<size_t> Write(Handle& handle, uint64_t offset, std::string_view data, bool append,
                               Contract contract);
  absl::StatusOr<Ticket> StartWrite(Handle& handle, uint64_t offset, std::string_view data,
                                    bool append, Contract contract);
  absl::StatusOr<Ticket> StartFsync(Node& node);
  // Issues the records of one write. Returns the last record's seq.
  absl::StatusOr<Seq> IssueWrite(Node& node, uint64_t offset, std::string_view data, SendWhen when)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Reserves room for a write there, until its records are issued. `fd` is the file's.
  absl::StatusOr<SpaceGuard::Hold> ReserveSpace(Node& node, int fd, uint64_t offset,
                                                uint64_t length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Reserves room for a side effect of a new end of the file at `upto`, or (kStays) of a write
  // there, behind its end. The file system then zeroes the rest of the block where the file ends,
  // which needs another block if another file shares that one.
  enum class End { kMoves, kStays };
  absl::StatusOr<SpaceGuard::Hold> ReserveEnd(Node& node, int fd, uint64_t upto, End end)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Waits until the ticket's record is durable, not until it is applied: the disk may hang.
  absl::Status Await(const Ticket& ticket);
  absl::Status Fallocate(Handle& handle, int mode, uint64_t offset, uint64_t length);
  absl::StatusOr<uint64_t> Lseek(Handle& handle, uint64_t offset, int whence);
  absl::StatusOr<size_t> CopyFileRange(Handle& in, uint64_t in_offset, Handle& out,
                                       uint64_t out_offset, size_t length);
  // Returns how many of the `length` bytes at `offset` the file system can address; EFBIG when
  // none.
  absl::StatusOr<uint64_t> FitLength(Node& node, int fd, uint64_t offset, uint64_t length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);

  // ---- bulk.cc
  // Returns true when no name is left, so that all changes go straight to the backing file. Then
  // every record of the node is applied.
  absl::StatusOr<bool> PrepareNameless(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Returns true when writes go straight to the backing file: no name is left, or the file is bulk.
  // Then every record of the node is applied.
  absl::StatusOr<bool> PrepareDirect(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Counts a plain write; past the limit the file becomes bulk.
  absl::Status CountUnsynced(Node& node, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  absl::Status DirectWrite(Node& node, int fd, uint64_t offset, std::string_view data)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  void NoteDirect(Node& node, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Syncs a bulk file and issues "on disk up to" if records of it may still be replayed. Returns
  // the seq to wait for; 0: none. Afterwards the file is not bulk.
  absl::StatusOr<Seq> SyncBulk(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Remembers uncheckpointed creates: such a file's name may not be on disk.
  void NoteCreated(FileId id, Seq seq);
  bool CreatedAfter(const Node& node, Seq checkpoint);
  void EndBulk(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Ends bulk of a file without a name: nothing brings it back, so its data need not be synced, and
  // its space is free as soon as it is closed.
  void EndBulkOfNameless(Node& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Called before and after the checkpoint's sync. Files that it covered stop being bulk once it is
  // noted.
  std::vector<std::pair<PinnedNode, uint64_t>> BulkBeforeSync();
  void BulkAfterSync(const std::vector<std::pair<PinnedNode, uint64_t>>& before);

  // ---- attr.cc
  absl::StatusOr<struct stat> GetAttr(Node& node, bool* provisional);
  // Returns fstat(2) of the backing file without the hidden link.
  absl::StatusOr<struct stat> StatOf(Node& node);
  absl::StatusOr<struct stat> SetAttr(Node& node, uint32_t mask, const struct stat& want,
                                      bool* provisional);
  absl::Status CheckNewGroup(Node& node, gid_t gid);
  absl::Status Truncate(Node& node, uint64_t size);
  // Issues an attribute record and waits for its result.
  absl::Status ChangeAttr(Node& node, RecordDraft draft) ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  absl::StatusOr<std::string> GetXattr(Node& node, const std::string& name);
  absl::StatusOr<std::vector<std::string>> ListXattr(Node& node);
  absl::Status SetXattr(Node& node, const std::string& name, std::string_view value, int flags,
                        bool kill_sgid);
  absl::Status RemoveXattr(Node& node, const std::string& name);

  // ---- names.cc
  absl::StatusOr<Child> ChildOf(Node& node, const std::string& name);
  // Make the checks that need no look at the disk; `dots` is the errno for "." and "..".
  absl::Status CheckNewNameSyntax(const Node& node, std::string_view name);
  absl::Status CheckOldNameSyntax(const Node& node, std::string_view name, int dots);
  absl::Status CheckNewName(Node& node, const std::string& name);
  // Refuse before the stamp a change that applying would refuse, because recovery would meet it
  // again: EPERM for an immutable or append-only object.
  absl::Status CheckChangeable(const Node& node);
  absl::Status CheckRemovable(const Node& dir, const Node& victim);
  absl::Status CheckRename(Node& from_dir, Node& to_dir, Node& moved, Node* other, uint32_t how);
  // Fills in mode, owner and ACLs of a new object.
  absl::Status FillInherited(Node& parent, const Caller& caller, CreateBody& body);
  absl::StatusOr<Entry> Create(Node& parent, std::string_view name, CreateBody body,
                               const Caller& caller);
  // Issues a complete body, waits, and returns the new node.
  absl::StatusOr<PinnedNode> MakeNew(CreateBody body);
  // Opens a file that was made or found; the node's pin becomes the caller's lookup.
  absl::StatusOr<Volume::Created> OpenMade(PinnedNode node, int flags, uid_t opener);
  absl::StatusOr<Volume::Created> CreateFile(Node& parent, std::string_view name, int flags,
                                             mode_t mode, const Caller& caller);
  absl::StatusOr<Volume::Created> CreateTmpFile(Node& parent, int flags, mode_t mode,
                                                const Caller& caller);
  absl::StatusOr<Entry> Link(Node& node, Node& parent, std::string_view name);
  absl::Status Unlink(Node& parent, std::string_view name);
  absl::Status RemoveDir(Node& parent, std::string_view name);
  absl::Status Rename(Node& from_dir, std::string_view from, Node& to_dir, std::string_view to,
                      uint32_t flags, const Caller& caller);
  absl::Status FillWhiteout(Node& from_dir, const Caller&, RenameBody& body);
  absl::Status DoRename(Node& from_dir, Node& to_dir, RenameBody body, Node& moved, Node* other);
  absl::Status Remove(Node& parent, const std::string& name, Node& victim);
  // Returns whether the file has exactly one name. While its `stream` is held it gets no other.
  static absl::StatusOr<bool> HasOneName(const Node& node);
  bool IsHidden(const Node& node, std::string_view name) const;

  VolumeDir dir;
  VolumeOptions options;
  UniqueFd tmp_dir, open_dir;
  UniqueFd clock_file;  // without a name; stamped to learn the file system's time. May be missing
  UniqueFd sync_fd;     // opened first, so that syncfs on it reports every write-back error since.
                        // Each is reported once, so only SyncBacking() calls it
  FileFds file_fds{LinuxBacking()};
  std::atomic<bool> told_no_room{false};  // it was logged that no descriptor is left
  std::atomic<bool> told_share{false};    // it was logged that a user has its share
  NodeTable table;
  std::unique_ptr<Chores> chores = std::make_unique<Chores>();
  PinnedNode root;
  std::unique_ptr<SpaceGuard> space;
  uint64_t shared_block_bytes = 0;  // fs::SharedBlockBytes
  // Ids at or above this that this session did not hand out come from another volume (copied
  // xattrs).
  std::atomic<FileId> id_ceiling{0};
  // Set once; atomic because the sink may be called while the stream is being started.
  std::atomic<RecordStream*> pipe{nullptr};
  std::unique_ptr<RecordStream> stream;

  std::atomic<bool> failed{false};  // `failure` is set
  mutable absl::Mutex failure_mu;
  absl::Status failure ABSL_GUARDED_BY(failure_mu);  // of a sync outside the stream

  absl::Mutex bulk_mu;
  struct BulkState {
    uint64_t covered_writes = 0;  // direct writes that a finished sync covers
    bool covered = false;
  };
  absl::flat_hash_map<Node*, BulkState> bulk_nodes ABSL_GUARDED_BY(bulk_mu);  // each pinned once
  absl::flat_hash_map<FileId, Seq> created ABSL_GUARDED_BY(bulk_mu);
  struct HiddenLink {
    PinnedNode node;
    Seq after = 0;  // issued when it was last closed
  };
  absl::flat_hash_map<Node*, HiddenLink> hidden_links ABSL_GUARDED_BY(bulk_mu);  // of O_TMPFILEs
  Seq next_hidden_link ABSL_GUARDED_BY(bulk_mu) = UINT64_MAX;  // no `after` is less than this

  Counter& bulk_bytes;
  Counter& bulk_entered;
  Counter& bulk_synced;
  Counter& adopted;
  Counter& cancelled;
};

// The locks of the directories of one name operation, taken in ascending order of address.
class NameLocks {
 public:
  explicit NameLocks(std::vector<Node*> dirs);
  ~NameLocks();
  NameLocks(const NameLocks&) = delete;
  NameLocks& operator=(const NameLocks&) = delete;

 private:
  std::vector<Node*> dirs_;
};

// Return an error of the stream as the caller gets it: EROFS for a name operation of which no
// record was issued, so that nothing has happened; EIO for everything else.
absl::Status AsNameError(const absl::Status& status);
absl::Status AsDataError(const absl::Status& status);

}  // namespace salius
