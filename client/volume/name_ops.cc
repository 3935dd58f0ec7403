#include "client/volume/name_ops.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/volume/changeable.h"
#include "common/check.h"
#include "common/file.h"
#include "common/limits.h"
#include "storage/apply.h"
#include "storage/names_acl.h"
#include "storage/posix_acl.h"

namespace salius {
namespace {

// Returns the bytes that a new object takes, besides its inode. A file system keeps a short target
// in the inode; ext4 up to 59 bytes.
uint64_t BlocksOfNew(const CreateBody& body) {
  constexpr uint64_t kBlock = 4096;
  constexpr size_t kShortTarget = 59;
  return S_ISDIR(body.mode) || body.symlink_target.size() > kShortTarget ? kBlock : 0;
}

}  // namespace

NameLocks::NameLocks(std::vector<Node*> dirs) : dirs_(std::move(dirs)) {
  std::sort(dirs_.begin(), dirs_.end(), std::less<>());
  dirs_.erase(std::unique(dirs_.begin(), dirs_.end()), dirs_.end());
  for (Node* const dir : dirs_) dir->names.Lock();
}

NameLocks::~NameLocks() {
  for (auto dir = dirs_.rbegin(); dir != dirs_.rend(); ++dir) (*dir)->names.Unlock();
}

absl::StatusOr<PinnedNode> NameOps::ChildOf(Node& node, const std::string& name) {
  if (check_.IsHidden(node, name)) return ErrnoStatus(ENOENT, name);
  if (std::optional<PinnedNode> pending = pending_.Find(node, name); pending.has_value()) {
    if (!*pending) return ErrnoStatus(ENOENT, name);
    return *std::move(pending);
  }
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, backing_.OpenChild(node.path_fd.get(), name));
  return table_.Intern(std::move(fd));
}

absl::StatusOr<Entry> NameOps::Lookup(Node& node, std::string_view name) {
  if (!node.is_dir()) return ErrnoStatus(ENOTDIR, "lookup");
  if (name.size() > kMaxNameBytes) return ErrnoStatus(ENAMETOOLONG, "lookup");
  if (name.empty() || name == "." || name == "..") return ErrnoStatus(ENOENT, "lookup");
  SALIUS_ASSIGN_OR_RETURN(PinnedNode child, ChildOf(node, std::string(name)));
  Entry entry;
  SALIUS_ASSIGN_OR_RETURN(entry.attr, attrs_.GetAttr(*child, &entry.provisional));
  entry.node = child.Release();
  return entry;
}

absl::StatusOr<Entry> NameOps::LookupListed(Node& dir, const std::string& name, ino_t ino,
                                            bool may_wait) {
  if (pending_.Touches(dir)) return Lookup(dir, name);
  Entry entry;
  const Seq issued = table_.issued();
  if (PinnedNode known = table_.FindInode(ino)) {
    const absl::StatusOr<struct stat> attr =
        attrs_.GetAttrAt(*known, dir, name, may_wait, &entry.provisional);
    if (!attr.ok()) return Lookup(dir, name);  // the name may be another object's by now
    entry.attr = *attr;
    entry.node = known.Release();
    return entry;
  }
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, backing_.OpenChild(dir.path_fd.get(), name));
  SALIUS_ASSIGN_OR_RETURN(NodeTable::Listed listed, table_.InternListed(std::move(fd), issued));
  entry.attr = listed.attr;
  // If another node of this file was in use meanwhile, a later record may have changed it. (None
  // was, if the name is still the object that was listed, and nothing was stamped since.)
  if (!listed.current || listed.node->ino != ino) {
    SALIUS_ASSIGN_OR_RETURN(entry.attr, attrs_.GetAttr(*listed.node, &entry.provisional));
  }
  entry.node = listed.node.Release();
  return entry;
}

void NameOps::Forget(Node& node, uint64_t lookups) {
  // The root stays: it was never looked up.
  if (&node != &table_.root() && lookups > 0) table_.Unpin(node, lookups);
}

absl::Status NameOps::FillInherited(Node& parent, const Caller& caller, CreateBody& body) {
  ParentFacts facts;
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, attrs_.FactsOf(parent));
  facts.mode = st.st_mode;
  facts.gid = st.st_gid;
  absl::StatusOr<std::string> acl = attrs_.GetXattr(parent, kDefaultAclXattr);
  if (acl.ok()) {
    facts.default_acl = *std::move(acl);
  } else if (const int why = StatusErrno(acl.status()); why != ENODATA) {
    return acl.status();  // without the inherited ACL more users might open the new object
  }
  CallerFacts creator;
  creator.gid = caller.gid;
  creator.umask = caller.umask;
  creator.privileged = caller.uid == 0 || caller.sgid_checked;
  creator.groups = caller.groups;
  SALIUS_ASSIGN_OR_RETURN(Inherited inherited, Inherit(facts, body.mode, creator));
  body.mode = inherited.mode;
  body.uid = caller.uid;
  body.gid = inherited.gid;
  body.xattrs = std::move(inherited.xattrs);
  // XFS keeps small directories and targets in the inode; near a limit the create waits there.
  return space_.CheckNew(body.uid, body.gid, space_.quota_binds_root() ? 0 : BlocksOfNew(body));
}

absl::StatusOr<bool> NameOps::BeginEarly(std::initializer_list<Node*> dirs, bool possible,
                                         NameChange& change, bool adds) {
  if (!waits_.ReturnsEarly(dirs, possible, adds)) return false;
  SALIUS_ASSIGN_OR_RETURN(const bool begun, change.BeginEarly());
  if (!begun) waits_.CountUnpredicted();
  return begun;
}

absl::StatusOr<Seq> NameOps::Perform(RecordDraft draft, NameChange& change, bool early,
                                     absl::FunctionRef<void(const RecordHeader&)> enter) {
  if (early) {
    draft.when = SendWhen::kLater;
  } else {
    draft.result = std::make_shared<ApplyResult>();
  }
  SALIUS_ASSIGN_OR_RETURN(const RecordRef record, issuer_.IssueName(std::move(draft)));
  if (early) {
    enter(record->header());
  } else {
    SALIUS_RETURN_IF_ERROR(issuer_.AwaitResult(record));
    SALIUS_RETURN_IF_ERROR(change.NoteApplied(record->seq()));
  }
  return record->seq();
}

absl::StatusOr<PinnedNode> NameOps::MakeObjectOf(FileId id, const CreateBody& body) {
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, MakeObject(backing_, dirs_.tmp_fd(), IdName(id), id, body));
  SALIUS_ASSIGN_OR_RETURN(PinnedNode node, table_.Intern(std::move(fd)));
  // A copy of another volume's file may have this very id, and be in use just now.
  if (!table_.SetId(*node, id)) {
    return absl::InternalError(absl::StrCat("file id ", id, " is another file's already"));
  }
  node->identified.store(true);
  return node;
}

absl::StatusOr<PinnedNode> NameOps::MakeNew(Node* parent, CreateBody body) {
  SALIUS_ASSIGN_OR_RETURN(const FileId id, issuer_.NewId());
  RecordDraft draft;
  draft.op = Op::kCreate;
  draft.file_id = id;
  draft.body = body.Encode();
  if (draft.body.size() > kMaxRecordBody) return ErrnoStatus(ENOSPC, "ACLs of a new object");
  PinnedNode node;
  const auto make = [&]() -> absl::StatusOr<Seq> {
    NameChange change(pending_);  // ends before the node does
    absl::StatusOr<PinnedNode> made = MakeObjectOf(id, body);
    if (StatusErrno(made.status()) == ENOSPC) {
      // Files that were removed just now may still have the room.
      SALIUS_RETURN_IF_ERROR(space_.FreeRemoved());
      made = MakeObjectOf(id, body);
    }
    issuer_.NoteDiskError(made.status());
    if (!made.ok()) return made.status();
    node = *std::move(made);
    change.AddObject(*node, 0);
    if (parent == nullptr) {
      {
        absl::MutexLock lock(&node->state);
        node->hidden_link = true;
      }
      SALIUS_ASSIGN_OR_RETURN(const bool early, BeginEarly({}, /*possible=*/true, change));
      return Perform(std::move(draft), change, early,
                     [&](const RecordHeader& header) { change.MakeNameless(header); });
    }
    change.AddDir(*parent, S_ISDIR(body.mode) ? 1 : 0);
    SALIUS_ASSIGN_OR_RETURN(const bool early, BeginEarly({parent}, /*possible=*/true, change));
    if (!early && S_ISDIR(body.mode)) {
      // The object was not made in its directory. A directory that is marked waits.
      SALIUS_RETURN_IF_ERROR(
          backing_.InheritSync(parent->path_fd.get(), node->path_fd.get()));
    }
    return Perform(std::move(draft), change, early, [&](const RecordHeader& header) {
      change.Bind(header, *parent, body.name, *node);
    });
  };
  const absl::StatusOr<Seq> seq = make();
  if (!seq.ok()) {
    // A record that was issued is cancelled, or the volume has failed.
    node.Reset();
    dirs_.RemoveLeftover(dirs_.tmp_fd(), IdName(id));
    return seq.status();
  }
  bulk_.NoteCreated(id, *seq);
  return node;
}

absl::StatusOr<Entry> NameOps::Create(Node& parent, std::string_view name, CreateBody body,
                                      const Caller& caller) {
  SALIUS_RETURN_IF_ERROR(check_.NewNameSyntax(parent, name));
  body.name = std::string(name);
  PinnedNode node;
  {
    const NameLocks locks({&parent});
    SALIUS_RETURN_IF_ERROR(check_.NewName(parent, body.name));
    SALIUS_RETURN_IF_ERROR(FillInherited(parent, caller, body));
    SALIUS_RETURN_IF_ERROR(issuer_.EnsureId(parent));
    body.dir = parent.id.load();
    SALIUS_ASSIGN_OR_RETURN(node, MakeNew(&parent, std::move(body)));
  }
  Entry entry;
  SALIUS_ASSIGN_OR_RETURN(entry.attr, attrs_.GetAttr(*node, &entry.provisional));
  entry.node = node.Release();
  return entry;
}

absl::StatusOr<Entry> NameOps::MakeNode(Node& dir, std::string_view name, mode_t mode, dev_t rdev,
                                        const Caller& caller) {
  if ((mode & S_IFMT) == 0) mode |= S_IFREG;
  if (S_ISDIR(mode) || S_ISLNK(mode)) return ErrnoStatus(EINVAL, "mknod");
  CreateBody body;
  body.mode = mode;
  body.rdev = rdev;
  return Create(dir, name, std::move(body), caller);
}

absl::StatusOr<Entry> NameOps::MakeDir(Node& dir, std::string_view name, mode_t mode,
                                       const Caller& caller) {
  CreateBody body;
  body.mode = (mode & 07777) | S_IFDIR;
  return Create(dir, name, std::move(body), caller);
}

absl::StatusOr<Entry> NameOps::Symlink(Node& dir, std::string_view name, std::string_view target,
                                       const Caller& caller) {
  if (target.empty()) return ErrnoStatus(ENOENT, "symlink");
  if (target.size() > kMaxSymlinkBytes) return ErrnoStatus(ENAMETOOLONG, "symlink");
  CreateBody body;
  body.mode = S_IFLNK | 0777;
  body.symlink_target = std::string(target);
  return Create(dir, name, std::move(body), caller);
}

absl::StatusOr<std::string> NameOps::ReadLink(Node& node) {
  if (!S_ISLNK(node.type)) return ErrnoStatus(EINVAL, "readlink");
  return backing_.ReadLinkOf(node.path_fd.get());
}

absl::StatusOr<Created> NameOps::OpenMade(PinnedNode node, int flags, uid_t opener) {
  Created created;
  SALIUS_ASSIGN_OR_RETURN(created.handle, open_files_.OpenChecked(*node, flags, opener));
  const absl::StatusOr<struct stat> attr = attrs_.GetAttr(*node, &created.entry.provisional);
  if (!attr.ok()) {
    open_files_.Release(created.handle);
    return attr.status();
  }
  created.entry.attr = *attr;
  created.entry.node = node.Release();
  return created;
}

absl::StatusOr<Created> NameOps::CreateFile(Node& parent, std::string_view name, int flags,
                                            mode_t mode, const Caller& caller) {
  SALIUS_RETURN_IF_ERROR(open_files_.CheckRoom(caller.uid));
  // The file may be removed between EEXIST and the look-up; then it is made after all.
  for (int attempt = 0; attempt < 100; ++attempt) {
    bool made = true;
    CreateBody body;
    body.mode = (mode & 07777) | S_IFREG;
    absl::StatusOr<Entry> entry = Create(parent, name, std::move(body), caller);
    if (StatusErrno(entry.status()) == EEXIST && (flags & O_EXCL) == 0) {
      made = false;
      entry = Lookup(parent, name);
      if (StatusErrno(entry.status()) == ENOENT) continue;
    }
    if (!entry.ok()) return entry.status();
    return OpenMade(PinnedNode(table_, entry->node), made ? flags & ~O_TRUNC : flags, caller.uid);
  }
  return ErrnoStatus(EBUSY, "create");
}

absl::StatusOr<Created> NameOps::CreateTmpFile(Node& parent, int flags, mode_t mode,
                                               const Caller& caller) {
  if (!parent.is_dir()) return ErrnoStatus(ENOTDIR, "O_TMPFILE");
  SALIUS_RETURN_IF_ERROR(health_.Names());
  SALIUS_RETURN_IF_ERROR(open_files_.CheckRoom(caller.uid));
  CreateBody body;
  body.mode = (mode & 07777) | S_IFREG;
  SALIUS_RETURN_IF_ERROR(FillInherited(parent, caller, body));
  SALIUS_ASSIGN_OR_RETURN(PinnedNode node, MakeNew(nullptr, std::move(body)));
  return OpenMade(std::move(node), flags & ~(O_TRUNC | O_CREAT), caller.uid);
}

absl::StatusOr<Entry> NameOps::Link(Node& node, Node& parent, std::string_view name) {
  SALIUS_RETURN_IF_ERROR(check_.NewNameSyntax(parent, name));
  if (node.is_dir()) return ErrnoStatus(EPERM, "link of a directory");
  NameBody body;
  body.name = std::string(name);
  {
    const NameLocks locks({&parent});
    SALIUS_RETURN_IF_ERROR(check_.NewName(parent, body.name));
    SALIUS_RETURN_IF_ERROR(CheckChangeable(backing_, node));
    SALIUS_RETURN_IF_ERROR(issuer_.EnsureId(parent));
    // Held until the operation is done: as long as the name is new, no other name may be removed as
    // the last one.
    absl::MutexLock stream(&node.stream);
    SALIUS_RETURN_IF_ERROR(issuer_.EnsureIdLocked(node));
    SALIUS_RETURN_IF_ERROR(issuer_.AwaitRemoval(node));
    {
      absl::MutexLock lock(&node.state);
      if (node.orphan) return ErrnoStatus(ENOENT, "link of a file without a name");
    }
    body.dir = parent.id.load();
    RecordDraft draft;
    draft.op = Op::kLink;
    draft.file_id = node.id.load();
    draft.body = body.Encode();
    NameChange change(pending_);
    change.AddDir(parent, 0);
    change.AddObject(node, 1);
    SALIUS_ASSIGN_OR_RETURN(const bool early, BeginEarly({&parent}, /*possible=*/true, change));
    SALIUS_RETURN_IF_ERROR(
        Perform(std::move(draft), change, early, [&](const RecordHeader& header) {
          change.Bind(header, parent, body.name, node);
        }).status());
  }
  table_.Pin(node);
  PinnedNode lookup(table_, &node);
  Entry entry;
  SALIUS_ASSIGN_OR_RETURN(entry.attr, attrs_.GetAttr(node, &entry.provisional));
  entry.node = lookup.Release();
  return entry;
}

absl::StatusOr<nlink_t> NameOps::LinksOf(Node& node) {
  {
    absl::MutexLock lock(&node.state);
    const NodeChanges::Records& records = node.seen_records();
    if (records.prediction != nullptr) return records.prediction->attributes().st_nlink;
  }
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.Stat(node.path_fd.get()));
  return st.st_nlink;
}

absl::StatusOr<bool> NameOps::HasOneName(Node& node) {
  if (node.is_dir()) return false;
  SALIUS_ASSIGN_OR_RETURN(const nlink_t links, LinksOf(node));
  return links == 1;
}

absl::Status NameOps::Remove(Node& parent, const std::string& name, Node& victim) {
  SALIUS_RETURN_IF_ERROR(check_.Removable(parent, victim));
  SALIUS_RETURN_IF_ERROR(issuer_.EnsureId(parent));
  SALIUS_RETURN_IF_ERROR(issuer_.EnsureId(victim));
  NameBody body;
  body.dir = parent.id.load();
  body.name = name;
  RecordDraft draft;
  draft.op = Op::kUnlink;
  draft.file_id = victim.id.load();
  draft.arg0 = victim.is_dir() ? 1 : 0;
  draft.body = body.Encode();
  // Held until the removal is issued, or else applied: no record of the victim may come after the
  // one that removes its last name. A checkpoint could cover only the removal, and recovery would
  // look for a file that is rightly gone.
  absl::MutexLock stream(&victim.stream);
  SALIUS_ASSIGN_OR_RETURN(const bool only, HasOneName(victim));
  draft.arg1 = only ? 1 : 0;
  // A bulk file stops being one when it is removed, which frees its space.
  NameChange change(pending_);
  change.AddDir(parent, victim.is_dir() ? -1 : 0);
  change.AddObject(victim, victim.is_dir() ? -2 : -1);
  if (only || victim.is_dir()) change.SetRemoved(victim);
  SALIUS_ASSIGN_OR_RETURN(const bool early,
                          BeginEarly({&parent}, /*possible=*/!victim.seen_writing().bulk, change,
                                     /*adds=*/false));
  const absl::StatusOr<Seq> removed =
      Perform(std::move(draft), change, early,
              [&](const RecordHeader& header) { change.Remove(header, parent, name); });
  if (!early) bulk_.EndOfNameless(victim);
  return removed.status();
}

absl::Status NameOps::Unlink(Node& parent, std::string_view name) {
  SALIUS_RETURN_IF_ERROR(check_.OldNameSyntax(parent, name, EISDIR));
  const std::string text(name);
  const NameLocks locks({&parent});
  SALIUS_ASSIGN_OR_RETURN(const PinnedNode victim, ChildOf(parent, text));
  if (victim->is_dir()) return ErrnoStatus(EISDIR, text);
  return Remove(parent, text, *victim);
}

absl::Status NameOps::RemoveDir(Node& parent, std::string_view name) {
  SALIUS_RETURN_IF_ERROR(check_.OldNameSyntax(parent, name, name == "." ? EINVAL : ENOTEMPTY));
  const std::string text(name);
  // The victim must stay empty, so it is locked too: find it, lock both in order, find it again.
  PinnedNode expected;
  PinnedNode previous;  // outlives its lock
  while (true) {
    std::vector<Node*> dirs = {&parent};
    if (expected) dirs.push_back(expected.get());
    const NameLocks locks(std::move(dirs));
    SALIUS_ASSIGN_OR_RETURN(PinnedNode victim, ChildOf(parent, text));
    if (!victim->is_dir()) return ErrnoStatus(ENOTDIR, text);
    if (victim.get() != expected.get()) {
      previous = std::move(expected);
      expected = std::move(victim);
      continue;
    }
    SALIUS_ASSIGN_OR_RETURN(const bool empty, pending_.IsEmpty(*victim));
    if (!empty) return ErrnoStatus(ENOTEMPTY, text);
    return Remove(parent, text, *victim);
  }
}

}  // namespace salius
