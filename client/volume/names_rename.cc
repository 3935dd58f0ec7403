// Rename: makes the checks that the kernel would make, then stamps the record.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <utility>

#include "client/volume/volume_impl.h"
#include "common/check.h"
#include "storage/fs_calls.h"

namespace salius {
namespace {

bool Is(const struct stat& st, const Node& node) {
  return st.st_dev == node.dev && st.st_ino == node.ino;
}

// Returns whether the directory `below` is `node` or lies in it. Goes up from there to the volume's
// root, because the kernel gives no path that is longer than 4095 bytes.
absl::StatusOr<bool> Contains(const Node& root, const Node& node, const Node& below) {
  if (&node == &below) return true;
  if (!node.is_dir()) return false;
  SALIUS_ASSIGN_OR_RETURN(UniqueFd at, OpenAt(below.path_fd.get(), ".", O_PATH | O_DIRECTORY));
  SALIUS_ASSIGN_OR_RETURN(struct stat st, fs::Stat(at.get()));
  while (!Is(st, root)) {
    if (Is(st, node)) return true;
    SALIUS_ASSIGN_OR_RETURN(at, OpenAt(at.get(), "..", O_PATH | O_DIRECTORY));
    const struct stat inner = st;
    SALIUS_ASSIGN_OR_RETURN(st, fs::Stat(at.get()));
    // It was moved out of the volume.
    if (st.st_dev == inner.st_dev && st.st_ino == inner.st_ino) return ErrnoStatus(ESTALE, "..");
  }
  return false;
}

}  // namespace

absl::Status Volume::Impl::Rename(Node& from_dir, std::string_view from, Node& to_dir,
                                  std::string_view to, uint32_t flags, const Caller& caller) {
  const bool whiteout = (flags & RENAME_WHITEOUT) != 0;
  const uint32_t how = flags & ~RENAME_WHITEOUT;
  if (how != 0 && how != RENAME_NOREPLACE && (how != RENAME_EXCHANGE || whiteout)) {
    return ErrnoStatus(EINVAL, "rename flags");
  }
  SALIUS_RETURN_IF_ERROR(CheckOldNameSyntax(from_dir, from, EBUSY));
  if (IsHidden(to_dir, to)) return ErrnoStatus(EPERM, ".salius is Salius' own");
  SALIUS_RETURN_IF_ERROR(CheckOldNameSyntax(to_dir, to, EBUSY));
  const std::string from_name(from);
  const std::string to_name(to);
  // A directory that is displaced must stay empty: as in RemoveDir.
  PinnedNode expected;
  PinnedNode previous;  // outlives its lock
  while (true) {
    std::vector<Node*> dirs = {&from_dir, &to_dir};
    if (expected) dirs.push_back(expected.get());
    const NameLocks locks(std::move(dirs));
    SALIUS_ASSIGN_OR_RETURN(const Child moved, ChildOf(from_dir, from_name));
    absl::StatusOr<Child> other = ChildOf(to_dir, to_name);
    if (!other.ok() && StatusErrno(other.status()) != ENOENT) return other.status();
    const bool locks_other = other.ok() && other->node->is_dir() && how == 0 &&
                             other->node.get() != &from_dir && other->node.get() != &to_dir;
    if (locks_other && other->node.get() != expected.get()) {
      previous = std::move(expected);
      expected = std::move(other->node);
      continue;
    }
    Node* const target = other.ok() ? other->node.get() : nullptr;
    SALIUS_RETURN_IF_ERROR(CheckRename(from_dir, to_dir, *moved.node, target, how));
    if (target == moved.node.get())
      return absl::OkStatus();  // two names of one file: nothing to do
    RenameBody body;
    body.from_name = from_name;
    body.to_name = to_name;
    body.flags = flags;
    if (whiteout) SALIUS_RETURN_IF_ERROR(FillWhiteout(from_dir, caller, body));
    return DoRename(from_dir, to_dir, std::move(body), *moved.node, target);
  }
}

absl::Status Volume::Impl::CheckRename(Node& from_dir, Node& to_dir, Node& moved, Node* other,
                                       uint32_t how) {
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, fs::Stat(to_dir.path_fd.get()));
  if (st.st_nlink == 0) return ErrnoStatus(ENOENT, "the directory was removed");
  // Within one directory neither object contains the directory.
  const bool across = &from_dir != &to_dir;
  if (across) {
    SALIUS_ASSIGN_OR_RETURN(const bool into_itself, Contains(*root, moved, to_dir));
    if (into_itself) return ErrnoStatus(EINVAL, "rename of a directory into itself");
  }
  SALIUS_RETURN_IF_ERROR(CheckRemovable(from_dir, moved));
  SALIUS_ASSIGN_OR_RETURN(const fs::ChangeMarks marks, fs::ChangeMarksOf(to_dir.path_fd.get()));
  if (marks.immutable) return ErrnoStatus(EPERM, "an immutable directory");
  if (other == nullptr) {
    return how == RENAME_EXCHANGE ? ErrnoStatus(ENOENT, "rename") : absl::OkStatus();
  }
  if (how == RENAME_NOREPLACE) return ErrnoStatus(EEXIST, "rename");
  SALIUS_RETURN_IF_ERROR(CheckRemovable(to_dir, *other));
  bool onto_parent = false;
  if (across) {
    SALIUS_ASSIGN_OR_RETURN(onto_parent, Contains(*root, *other, from_dir));
  }
  if (how == RENAME_EXCHANGE) {
    return onto_parent ? ErrnoStatus(EINVAL, "exchange with a parent") : absl::OkStatus();
  }
  if (onto_parent) return ErrnoStatus(ENOTEMPTY, "rename");
  if (other == &moved) return absl::OkStatus();
  if (moved.is_dir() && !other->is_dir()) return ErrnoStatus(ENOTDIR, "rename");
  if (!moved.is_dir() && other->is_dir()) return ErrnoStatus(EISDIR, "rename");
  if (!other->is_dir()) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const bool empty, fs::IsEmptyDir(other->path_fd.get()));
  return empty ? absl::OkStatus() : ErrnoStatus(ENOTEMPTY, "rename");
}

absl::Status Volume::Impl::FillWhiteout(Node& from_dir, const Caller& caller, RenameBody& body) {
  CreateBody made;
  made.mode = S_IFCHR;
  SALIUS_RETURN_IF_ERROR(FillInherited(from_dir, caller, made));
  body.whiteout_uid = made.uid;
  body.whiteout_gid = made.gid;
  SALIUS_ASSIGN_OR_RETURN(body.whiteout, NewId());
  return absl::OkStatus();
}

absl::Status Volume::Impl::DoRename(Node& from_dir, Node& to_dir, RenameBody body, Node& moved,
                                    Node* other) {
  for (Node* const node : {&from_dir, &to_dir, &moved, other}) {
    if (node != nullptr) SALIUS_RETURN_IF_ERROR(EnsureId(*node));
  }
  body.from_dir = from_dir.id.load();
  body.to_dir = to_dir.id.load();
  if (other != nullptr) body.other = other->id.load();
  RecordDraft draft;
  draft.op = Op::kRename;
  draft.file_id = moved.id.load();
  draft.body = body.Encode();
  Node* const displaced = (body.flags & RENAME_EXCHANGE) == 0 ? other : nullptr;
  if (displaced != nullptr) {
    // Data past the log must be synced before the rename: otherwise a power cut would leave holes
    // in place of the old file. SyncBulk's record comes before the rename in the log, so this does
    // not wait for it.
    absl::MutexLock lock(&moved.stream);
    const absl::Status synced = SyncBulk(moved).status();
    CloseIdle(moved);
    SALIUS_RETURN_IF_ERROR(synced);
  }
  // As in Remove(): no record of the displaced file may be stamped after this.
  absl::MutexLockMaybe stream(displaced != nullptr ? &displaced->stream : nullptr);
  if (displaced != nullptr) {
    SALIUS_ASSIGN_OR_RETURN(const bool only, HasOneName(*displaced));
    draft.arg0 = only ? 1 : 0;
  }
  SALIUS_ASSIGN_OR_RETURN(const RecordRef record, IssueName(std::move(draft)));
  const absl::Status renamed = AwaitResult(record).status();
  if (renamed.ok() && body.whiteout != kNoFileId) NoteCreated(body.whiteout, record->seq());
  if (displaced != nullptr) {
    displaced->stream.AssertHeld();
    EndBulkOfNameless(*displaced);
  }
  return renamed;
}

}  // namespace salius
