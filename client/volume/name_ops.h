// Names: under the locks of its directories an operation checks that it can succeed, makes a new
// object in `.salius/tmp`, and stamps its record. Applying gives the object its name. There are two
// ways on:
// - It waits until the record is durable and applied, and returns the result. An operation that
//   passes the checks and fails when it is applied is cancelled.
// - With `names=async` it returns at once: the names are in PendingNames until the record is
//   applied. An error of the apply makes the volume fail (I8). So an operation waits all the same
//   where the disk may refuse it (NameWaits).
//
// `.salius` in the root does not exist for callers: ENOENT, and EPERM to make it.
//
// Errors: absl::Status with the exact errno in its payload. Threads: any.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/record_draft.h"
#include "client/volume/attr_ops.h"
#include "client/volume/backing_dirs.h"
#include "client/volume/bulk_files.h"
#include "client/volume/health.h"
#include "client/volume/issuer.h"
#include "client/volume/name_checks.h"
#include "client/volume/name_waits.h"
#include "client/volume/node.h"
#include "client/volume/open_files.h"
#include "client/volume/pending_names.h"
#include "client/volume/types.h"
#include "log/record.h"
#include "storage/backing.h"
#include "storage/space.h"

namespace salius {

class NameOps {
 public:
  NameOps(Backing& backing, const BackingDirs& dirs, NodeTable& table, PendingNames& pending,
          Issuer& issuer, BulkFiles& bulk, SpaceGuard& space, const Health& health,
          const NameChecks& checks, OpenFiles& open_files, AttrOps& attrs, NameWaits& waits)
      : backing_(backing),
        dirs_(dirs),
        table_(table),
        pending_(pending),
        issuer_(issuer),
        bulk_(bulk),
        space_(space),
        health_(health),
        check_(checks),
        open_files_(open_files),
        attrs_(attrs),
        waits_(waits) {}
  NameOps(const NameOps&) = delete;
  NameOps& operator=(const NameOps&) = delete;

  absl::StatusOr<Entry> Lookup(Node& dir, std::string_view name);
  // The same, for an entry that a listing of the directory just gave, with the inode number `ino`.
  // The object is expected not to be used otherwise: it gets no descriptor of its own. `may_wait`:
  // as of AttrOps::GetAttrAt.
  absl::StatusOr<Entry> LookupListed(Node& dir, const std::string& name, ino_t ino,
                                     bool may_wait = true);
  // Takes `lookups` off the node's count.
  void Forget(Node& node, uint64_t lookups);
  absl::StatusOr<Entry> MakeNode(Node& dir, std::string_view name, mode_t mode, dev_t rdev,
                                 const Caller& caller);
  absl::StatusOr<Entry> MakeDir(Node& dir, std::string_view name, mode_t mode,
                                const Caller& caller);
  absl::StatusOr<Entry> Symlink(Node& dir, std::string_view name, std::string_view target,
                                const Caller& caller);
  // Makes a file, or without O_EXCL opens one that is there.
  absl::StatusOr<Created> CreateFile(Node& dir, std::string_view name, int flags, mode_t mode,
                                     const Caller& caller);
  // Makes a file without a name (O_TMPFILE).
  absl::StatusOr<Created> CreateTmpFile(Node& dir, int flags, mode_t mode, const Caller& caller);
  absl::StatusOr<Entry> Link(Node& node, Node& dir, std::string_view name);
  absl::Status Unlink(Node& dir, std::string_view name);
  absl::Status RemoveDir(Node& dir, std::string_view name);
  // Renames. `flags`: those of renameat2(2). With RENAME_WHITEOUT the caller owns the whiteout at
  // `from`.
  absl::Status Rename(Node& from_dir, std::string_view from, Node& to_dir, std::string_view to,
                      uint32_t flags, const Caller& caller = Caller());
  absl::StatusOr<std::string> ReadLink(Node& node);
  // Appends entries of an open directory from `offset` on until `emit` returns false. `.salius` is
  // left out of the root.
  absl::Status ReadDir(Handle& handle, uint64_t offset,
                       const std::function<bool(const DirEntry&)>& emit) const;

 private:
  // Returns the names that were not applied when the listing began; an offset of 0 begins it. It
  // waits for them, and returns none, when listings keep too many already.
  absl::StatusOr<std::shared_ptr<const Bindings::Snapshot>> PendingAt(Handle& handle,
                                                                      uint64_t offset) const;
  // Returns the object under a name, while its directory's `names` is held.
  absl::StatusOr<PinnedNode> ChildOf(Node& dir, const std::string& name);
  // Fills in mode, owner and ACLs of a new object.
  absl::Status FillInherited(Node& dir, const Caller& caller, CreateBody& body);
  absl::StatusOr<Entry> Create(Node& dir, std::string_view name, CreateBody body,
                               const Caller& caller);
  // Returns whether an operation in these directories returns before it is applied, which is
  // counted then. `possible` and `adds`: as of NameWaits::ReturnsEarly.
  absl::StatusOr<bool> BeginEarly(std::initializer_list<Node*> dirs, bool possible,
                                  NameChange& change, bool adds = true);
  // Stamps a name record. If `early` (BeginEarly), `enter` puts its effect into PendingNames;
  // otherwise the record is awaited. Returns its seq.
  absl::StatusOr<Seq> Perform(RecordDraft draft, NameChange& change, bool early,
                              absl::FunctionRef<void(const RecordHeader&)> enter);
  // Makes the object that a complete body describes, without a name.
  absl::StatusOr<PinnedNode> MakeObjectOf(FileId id, const CreateBody& body);
  // Makes the object, issues the body, and returns the new node. `parent`: null for a file without
  // a name.
  absl::StatusOr<PinnedNode> MakeNew(Node* parent, CreateBody body);
  // Opens a file that was made or found; the node's pin becomes the caller's lookup.
  absl::StatusOr<Created> OpenMade(PinnedNode node, int flags, uid_t opener);
  // Returns whether the whiteout inherits extended attributes. A record has no room for them: the
  // file system must give them, when it makes the whiteout itself.
  absl::StatusOr<bool> FillWhiteout(Node& from_dir, const Caller& caller, RenameBody& body);
  // `possible`: whether the rename may return early.
  absl::Status DoRename(Node& from_dir, Node& to_dir, RenameBody body, Node& moved, Node* other,
                        bool possible);
  absl::Status Remove(Node& dir, const std::string& name, Node& victim);
  // Returns st_nlink as it is when all records are applied, with a hidden link.
  absl::StatusOr<nlink_t> LinksOf(Node& node);
  // Returns whether the file has exactly one name. While its `stream` is held it gets no other.
  absl::StatusOr<bool> HasOneName(Node& node);
  // Tells `change` what a rename does to its nodes.
  static void AddRename(const RenameBody& body, bool only, Node& from_dir, Node& to_dir,
                        Node& moved, Node* other, NameChange& change);

  Backing& backing_;
  const BackingDirs& dirs_;
  NodeTable& table_;
  PendingNames& pending_;
  Issuer& issuer_;
  BulkFiles& bulk_;
  SpaceGuard& space_;
  const Health& health_;
  const NameChecks& check_;
  OpenFiles& open_files_;
  AttrOps& attrs_;
  NameWaits& waits_;
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

}  // namespace salius
