// Rename: the checks that the kernel would do, before the record is stamped, and the record.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include <utility>

#include "client/engine/volume_calls.h"
#include "client/engine/volume_impl.h"
#include "common/check.h"
#include "log/fs_calls.h"

namespace salius {
namespace {

// True when `below` is `node` or lies in the directory `node`.
absl::StatusOr<bool> Contains(const Node& node, const Node& below) {
  if (&node == &below) return true;
  if (!node.is_dir()) return false;
  SALIUS_ASSIGN_OR_RETURN(const std::string path, fs::PathOf(node.path_fd.get()));
  SALIUS_ASSIGN_OR_RETURN(const std::string inner, fs::PathOf(below.path_fd.get()));
  return inner.compare(0, path.size() + 1, path + "/") == 0;
}

}  // namespace

absl::Status Volume::Impl::Rename(Node& from_dir, std::string_view from, Node& to_dir,
                                  std::string_view to, uint32_t flags) {
  if (flags != 0 && flags != RENAME_NOREPLACE && flags != RENAME_EXCHANGE) {
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
    const bool locks_other = other.ok() && other->node->is_dir() && flags == 0 &&
                             other->node.get() != &from_dir && other->node.get() != &to_dir;
    if (locks_other && other->node.get() != expected.get()) {
      previous = std::move(expected);
      expected = std::move(other->node);
      continue;
    }
    Node* const target = other.ok() ? other->node.get() : nullptr;
    SALIUS_RETURN_IF_ERROR(CheckRename(from_dir, to_dir, *moved.node, target, flags));
    if (target == moved.node.get())
      return absl::OkStatus();  // two names of one file: nothing to do
    return DoRename(from_dir, from_name, to_dir, to_name, flags, *moved.node, target);
  }
}

absl::Status Volume::Impl::CheckRename(Node& from_dir, Node& to_dir, Node& moved, Node* other,
                                       uint32_t flags) {
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, fs::Stat(to_dir.path_fd.get()));
  if (st.st_nlink == 0) return ErrnoStatus(ENOENT, "the directory was removed");
  SALIUS_ASSIGN_OR_RETURN(const bool into_itself, Contains(moved, to_dir));
  if (into_itself) return ErrnoStatus(EINVAL, "rename of a directory into itself");
  SALIUS_RETURN_IF_ERROR(CheckRemovable(from_dir, moved));
  SALIUS_ASSIGN_OR_RETURN(const fs::ChangeMarks marks, fs::ChangeMarksOf(to_dir.path_fd.get()));
  if (marks.immutable) return ErrnoStatus(EPERM, "an immutable directory");
  if (other == nullptr) {
    return flags == RENAME_EXCHANGE ? ErrnoStatus(ENOENT, "rename") : absl::OkStatus();
  }
  if (flags == RENAME_NOREPLACE) return ErrnoStatus(EEXIST, "rename");
  SALIUS_RETURN_IF_ERROR(CheckRemovable(to_dir, *other));
  SALIUS_ASSIGN_OR_RETURN(const bool onto_parent, Contains(*other, from_dir));
  if (flags == RENAME_EXCHANGE) {
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

absl::Status Volume::Impl::DoRename(Node& from_dir, const std::string& from, Node& to_dir,
                                    const std::string& to, uint32_t flags, Node& moved,
                                    Node* other) {
  for (Node* const node : {&from_dir, &to_dir, &moved, other}) {
    if (node != nullptr) SALIUS_RETURN_IF_ERROR(EnsureId(*node));
  }
  RenameBody body;
  body.from_dir = from_dir.id.load();
  body.from_name = from;
  body.to_dir = to_dir.id.load();
  body.to_name = to;
  body.flags = flags;
  if (other != nullptr) body.other = other->id.load();
  RecordDraft draft;
  draft.op = Op::kRename;
  draft.file_id = moved.id.load();
  draft.body = body.Encode();
  // As in Remove(): nothing of the file that is displaced may be stamped after this.
  Node* const displaced = flags == 0 ? other : nullptr;
  absl::MutexLockMaybe stream(displaced != nullptr ? &displaced->stream : nullptr);
  SALIUS_ASSIGN_OR_RETURN(const RecordRef record, IssueName(std::move(draft)));
  const absl::Status renamed = NameResult(AwaitResult(record).status());
  if (displaced != nullptr) {
    displaced->stream.AssertHeld();
    EndBulkOfNameless(*displaced);
  }
  return renamed;
}

}  // namespace salius
