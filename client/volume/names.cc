// Names: under the locks of its directories an operation checks that it can succeed, stamps its
// record, waits until that is durable and applied, and returns the result. An operation that passes
// the checks and fails in Apply is cancelled.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/volume/volume_impl.h"
#include "common/check.h"
#include "common/limits.h"
#include "storage/apply.h"
#include "storage/fs_calls.h"
#include "storage/names_acl.h"
#include "storage/posix_acl.h"

namespace salius {
namespace {

// Returns the kernel's error for a bad name: ENOENT, ENAMETOOLONG, EINVAL.
absl::Status CheckName(std::string_view name) {
  if (name.empty()) return ErrnoStatus(ENOENT, "empty name");
  if (name.size() > kMaxNameBytes) return ErrnoStatus(ENAMETOOLONG, "name");
  if (name.find('/') != name.npos || name.find('\0') != name.npos) {
    return ErrnoStatus(EINVAL, "name");
  }
  return absl::OkStatus();
}

bool IsDots(std::string_view name) { return name == "." || name == ".."; }

}  // namespace

NameLocks::NameLocks(std::vector<Node*> dirs) : dirs_(std::move(dirs)) {
  std::sort(dirs_.begin(), dirs_.end(), std::less<>());
  dirs_.erase(std::unique(dirs_.begin(), dirs_.end()), dirs_.end());
  for (Node* const dir : dirs_) dir->names.Lock();
}

NameLocks::~NameLocks() {
  for (auto dir = dirs_.rbegin(); dir != dirs_.rend(); ++dir) (*dir)->names.Unlock();
}

absl::StatusOr<Volume::Impl::Child> Volume::Impl::ChildOf(Node& node, const std::string& name) {
  if (IsHidden(node, name)) return ErrnoStatus(ENOENT, name);
  Child child;
  SALIUS_ASSIGN_OR_RETURN(UniqueFd fd, fs::OpenChild(node.path_fd.get(), name));
  SALIUS_ASSIGN_OR_RETURN(child.st, fs::Stat(fd.get()));
  SALIUS_ASSIGN_OR_RETURN(child.node, Intern(std::move(fd)));
  return child;
}

absl::Status Volume::Impl::CheckRemovable(const Node& dir, const Node& victim) {
  SALIUS_RETURN_IF_ERROR(CheckChangeable(dir));
  return CheckChangeable(victim);
}

absl::Status Volume::Impl::CheckNewName(Node& node, const std::string& name) {
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, fs::Stat(node.path_fd.get()));
  if (st.st_nlink == 0) return ErrnoStatus(ENOENT, "the directory was removed");
  const absl::Status found = fs::StatAt(node.path_fd.get(), name).status();
  if (found.ok()) return ErrnoStatus(EEXIST, name);
  if (StatusErrno(found) != ENOENT) return found;
  SALIUS_ASSIGN_OR_RETURN(const fs::ChangeMarks marks, fs::ChangeMarksOf(node.path_fd.get()));
  return marks.immutable ? ErrnoStatus(EPERM, "an immutable directory") : absl::OkStatus();
}

absl::Status Volume::Impl::CheckNewNameSyntax(const Node& node, std::string_view name) {
  if (!node.is_dir()) return ErrnoStatus(ENOTDIR, "not a directory");
  if (IsDots(name)) return ErrnoStatus(EEXIST, "name");
  SALIUS_RETURN_IF_ERROR(CheckName(name));
  if (IsHidden(node, name)) return ErrnoStatus(EPERM, ".salius is Salius' own");
  return NameHealth();
}

absl::Status Volume::Impl::CheckOldNameSyntax(const Node& node, std::string_view name, int dots) {
  if (!node.is_dir()) return ErrnoStatus(ENOTDIR, "not a directory");
  if (IsDots(name)) return ErrnoStatus(dots, "name");
  SALIUS_RETURN_IF_ERROR(CheckName(name));
  if (IsHidden(node, name)) return ErrnoStatus(ENOENT, "name");
  return NameHealth();
}

absl::Status Volume::Impl::FillInherited(Node& parent, const Caller& caller, CreateBody& body) {
  ParentFacts facts;
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, fs::Stat(parent.path_fd.get()));
  facts.mode = st.st_mode;
  facts.gid = st.st_gid;
  absl::StatusOr<std::string> acl = fs::XattrValue(parent.path_fd.get(), kDefaultAclXattr);
  if (acl.ok()) {
    facts.default_acl = *std::move(acl);
  } else if (const int why = StatusErrno(acl.status()); why != ENODATA && why != EOPNOTSUPP) {
    return acl.status();  // without the inherited ACL more users might open the new object
  }
  CallerFacts who;
  who.gid = caller.gid;
  who.umask = caller.umask;
  who.privileged = caller.uid == 0 || caller.sgid_checked;
  who.groups = caller.groups;
  SALIUS_ASSIGN_OR_RETURN(Inherited inherited, Inherit(facts, body.mode, who));
  body.mode = inherited.mode;
  body.uid = caller.uid;
  body.gid = inherited.gid;
  body.xattrs = std::move(inherited.xattrs);
  return space->CheckInode(body.uid, body.gid);
}

absl::StatusOr<PinnedNode> Volume::Impl::MakeNew(CreateBody body) {
  SALIUS_ASSIGN_OR_RETURN(const FileId id, NewId());
  const bool nameless = body.dir == kNoFileId;
  RecordDraft draft;
  draft.op = Op::kCreate;
  draft.file_id = id;
  draft.body = body.Encode();
  if (draft.body.size() > kMaxRecordBody) return ErrnoStatus(ENOSPC, "ACLs of a new object");
  SALIUS_ASSIGN_OR_RETURN(const RecordRef record, IssueName(std::move(draft)));
  absl::StatusOr<UniqueFd> fd = AwaitResult(record);
  if (!fd.ok()) return fd.status();
  NoteCreated(id, record->seq());
  SALIUS_ASSIGN_OR_RETURN(PinnedNode node, Intern(*std::move(fd)));
  // A copy of another volume's file may have this very id, and be in use just now.
  if (!table.SetId(*node, id)) {
    return absl::InternalError(absl::StrCat("file id ", id, " is another file's already"));
  }
  node->identified.store(true);
  if (nameless) {
    absl::MutexLock lock(&node->state);
    node->hidden_link = true;
  }
  return node;
}

absl::StatusOr<Entry> Volume::Impl::Create(Node& parent, std::string_view name, CreateBody body,
                                           const Caller& caller) {
  SALIUS_RETURN_IF_ERROR(CheckNewNameSyntax(parent, name));
  body.name = std::string(name);
  PinnedNode node;
  {
    const NameLocks locks({&parent});
    SALIUS_RETURN_IF_ERROR(CheckNewName(parent, body.name));
    SALIUS_RETURN_IF_ERROR(FillInherited(parent, caller, body));
    SALIUS_RETURN_IF_ERROR(EnsureId(parent));
    body.dir = parent.id.load();
    SALIUS_ASSIGN_OR_RETURN(node, MakeNew(std::move(body)));
  }
  Entry entry;
  SALIUS_ASSIGN_OR_RETURN(entry.attr, GetAttr(*node, &entry.provisional));
  entry.node = node.Release();
  return entry;
}

absl::StatusOr<Volume::Created> Volume::Impl::OpenMade(PinnedNode node, int flags,
                                                      uid_t opener) {
  Created created;
  SALIUS_ASSIGN_OR_RETURN(created.handle, OpenNode(*node, flags, opener));
  const absl::StatusOr<struct stat> attr = GetAttr(*node, &created.entry.provisional);
  if (!attr.ok()) {
    Release(created.handle);
    return attr.status();
  }
  created.entry.attr = *attr;
  created.entry.node = node.Release();
  return created;
}

absl::StatusOr<Volume::Created> Volume::Impl::CreateFile(Node& parent, std::string_view name,
                                                         int flags, mode_t mode,
                                                         const Caller& caller) {
  SALIUS_RETURN_IF_ERROR(RoomForFile(caller.uid));
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
    return OpenMade(PinnedNode(table, entry->node), made ? flags & ~O_TRUNC : flags,
                    caller.uid);
  }
  return ErrnoStatus(EBUSY, "create");
}

absl::StatusOr<Volume::Created> Volume::Impl::CreateTmpFile(Node& parent, int flags, mode_t mode,
                                                            const Caller& caller) {
  if (!parent.is_dir()) return ErrnoStatus(ENOTDIR, "O_TMPFILE");
  SALIUS_RETURN_IF_ERROR(NameHealth());
  SALIUS_RETURN_IF_ERROR(RoomForFile(caller.uid));
  CreateBody body;
  body.mode = (mode & 07777) | S_IFREG;
  SALIUS_RETURN_IF_ERROR(FillInherited(parent, caller, body));
  SALIUS_ASSIGN_OR_RETURN(PinnedNode node, MakeNew(std::move(body)));
  return OpenMade(std::move(node), flags & ~(O_TRUNC | O_CREAT), caller.uid);
}

absl::StatusOr<Entry> Volume::Impl::Link(Node& node, Node& parent, std::string_view name) {
  SALIUS_RETURN_IF_ERROR(CheckNewNameSyntax(parent, name));
  if (node.is_dir()) return ErrnoStatus(EPERM, "link of a directory");
  NameBody body;
  body.name = std::string(name);
  {
    const NameLocks locks({&parent});
    SALIUS_RETURN_IF_ERROR(CheckNewName(parent, body.name));
    SALIUS_RETURN_IF_ERROR(CheckChangeable(node));
    SALIUS_RETURN_IF_ERROR(EnsureId(parent));
    // Held over the wait: until the name exists, no other name may be removed as the last one.
    absl::MutexLock stream(&node.stream);
    SALIUS_RETURN_IF_ERROR(EnsureIdLocked(node));
    {
      absl::MutexLock lock(&node.state);
      if (node.orphan) return ErrnoStatus(ENOENT, "link of a file without a name");
    }
    body.dir = parent.id.load();
    RecordDraft draft;
    draft.op = Op::kLink;
    draft.file_id = node.id.load();
    draft.body = body.Encode();
    SALIUS_ASSIGN_OR_RETURN(const RecordRef record, IssueName(std::move(draft)));
    SALIUS_RETURN_IF_ERROR(AwaitResult(record).status());
  }
  table.Pin(node);
  PinnedNode lookup(table, &node);
  Entry entry;
  SALIUS_ASSIGN_OR_RETURN(entry.attr, GetAttr(node, &entry.provisional));
  entry.node = lookup.Release();
  return entry;
}

absl::StatusOr<bool> Volume::Impl::HasOneName(const Node& node) {
  if (node.is_dir()) return false;
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, fs::Stat(node.path_fd.get()));
  return st.st_nlink == 1;
}

absl::Status Volume::Impl::Remove(Node& parent, const std::string& name, Node& victim) {
  SALIUS_RETURN_IF_ERROR(CheckRemovable(parent, victim));
  SALIUS_RETURN_IF_ERROR(EnsureId(parent));
  SALIUS_RETURN_IF_ERROR(EnsureId(victim));
  NameBody body;
  body.dir = parent.id.load();
  body.name = name;
  RecordDraft draft;
  draft.op = Op::kUnlink;
  draft.file_id = victim.id.load();
  draft.arg0 = victim.is_dir() ? 1 : 0;
  draft.body = body.Encode();
  // Held over the wait: no record of the victim may come after the one that removes its last name.
  // A checkpoint could cover only the removal, and recovery would look for a file that is rightly
  // gone.
  absl::MutexLock stream(&victim.stream);
  SALIUS_ASSIGN_OR_RETURN(const bool only, HasOneName(victim));
  draft.arg1 = only ? 1 : 0;
  SALIUS_ASSIGN_OR_RETURN(const RecordRef record, IssueName(std::move(draft)));
  const absl::Status removed = AwaitResult(record).status();
  EndBulkOfNameless(victim);
  return removed;
}

absl::Status Volume::Impl::Unlink(Node& parent, std::string_view name) {
  SALIUS_RETURN_IF_ERROR(CheckOldNameSyntax(parent, name, EISDIR));
  const std::string text(name);
  const NameLocks locks({&parent});
  SALIUS_ASSIGN_OR_RETURN(const Child victim, ChildOf(parent, text));
  if (victim.node->is_dir()) return ErrnoStatus(EISDIR, text);
  return Remove(parent, text, *victim.node);
}

absl::Status Volume::Impl::RemoveDir(Node& parent, std::string_view name) {
  SALIUS_RETURN_IF_ERROR(CheckOldNameSyntax(parent, name, name == "." ? EINVAL : ENOTEMPTY));
  const std::string text(name);
  // The victim must stay empty, so it is locked too: find it, lock both in order, find it again.
  PinnedNode expected;
  PinnedNode previous;  // outlives its lock
  while (true) {
    std::vector<Node*> dirs = {&parent};
    if (expected) dirs.push_back(expected.get());
    const NameLocks locks(std::move(dirs));
    SALIUS_ASSIGN_OR_RETURN(Child victim, ChildOf(parent, text));
    if (!victim.node->is_dir()) return ErrnoStatus(ENOTDIR, text);
    if (victim.node.get() != expected.get()) {
      previous = std::move(expected);
      expected = std::move(victim.node);
      continue;
    }
    SALIUS_ASSIGN_OR_RETURN(const bool empty, fs::IsEmptyDir(victim.node->path_fd.get()));
    if (!empty) return ErrnoStatus(ENOTEMPTY, text);
    return Remove(parent, text, *victim.node);
  }
}

}  // namespace salius
