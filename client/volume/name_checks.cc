#include "client/volume/name_checks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <optional>
#include <utility>

#include "client/volume/changeable.h"
#include "common/check.h"
#include "common/file.h"
#include "common/limits.h"
#include "storage/fs_calls.h"
#include "storage/volume_config.h"

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

bool Is(const struct stat& st, const Node& node) {
  return st.st_dev == node.dev() && st.st_ino == node.ino;
}

}  // namespace

bool NameChecks::IsHidden(const Node& dir, std::string_view name) const {
  return &dir == &table_.root() && name == kSaliusDir;
}

absl::Status NameChecks::NewNameSyntax(const Node& dir, std::string_view name) const {
  if (!dir.is_dir()) return ErrnoStatus(ENOTDIR, "not a directory");
  if (IsDots(name)) return ErrnoStatus(EEXIST, "name");
  SALIUS_RETURN_IF_ERROR(CheckName(name));
  if (IsHidden(dir, name)) return ErrnoStatus(EPERM, ".salius is Salius' own");
  return health_.Names();
}

absl::Status NameChecks::OldNameSyntax(const Node& dir, std::string_view name, int dots) const {
  if (!dir.is_dir()) return ErrnoStatus(ENOTDIR, "not a directory");
  if (IsDots(name)) return ErrnoStatus(dots, "name");
  SALIUS_RETURN_IF_ERROR(CheckName(name));
  if (IsHidden(dir, name)) return ErrnoStatus(ENOENT, "name");
  return health_.Names();
}

// Goes up to the volume's root, because the kernel gives no path that is longer than 4095 bytes. A
// directory whose binding is pending is elsewhere on the disk.
absl::StatusOr<bool> NameChecks::Contains(const Node& node, const Node& below) const {
  if (&node == &below) return true;
  if (!node.is_dir()) return false;
  const auto open = [this](int fd, const char* name) {
    return backing_.OpenAt(fd, name, O_PATH | O_DIRECTORY);
  };
  SALIUS_ASSIGN_OR_RETURN(BackingFd at, open(below.path_fd.get(), "."));
  SALIUS_ASSIGN_OR_RETURN(struct stat st, backing_.Stat(at.get()));
  while (!Is(st, table_.root())) {
    if (Is(st, node)) return true;
    const PinnedNode here = table_.FindInode(st.st_ino);
    const PinnedNode parent = here ? pending_.ParentOf(*here) : PinnedNode();
    if (parent) {
      SALIUS_ASSIGN_OR_RETURN(at, open(parent->path_fd.get(), "."));
    } else {
      SALIUS_ASSIGN_OR_RETURN(at, open(at.get(), ".."));
    }
    const struct stat inner = st;
    SALIUS_ASSIGN_OR_RETURN(st, backing_.Stat(at.get()));
    // It was moved out of the volume.
    if (st.st_dev == inner.st_dev && st.st_ino == inner.st_ino) return ErrnoStatus(ESTALE, "..");
  }
  return false;
}

absl::Status NameChecks::NotRemoved(Node& dir) const {
  bool removed = false;
  {
    absl::MutexLock lock(&dir.state);
    removed = dir.seen_records().removal_seq != 0;
  }
  if (!removed) {
    SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing_.Stat(dir.path_fd.get()));
    removed = st.st_nlink == 0;
  }
  return removed ? ErrnoStatus(ENOENT, "the directory was removed") : absl::OkStatus();
}

absl::Status NameChecks::NewName(Node& dir, const std::string& name) const {
  SALIUS_RETURN_IF_ERROR(NotRemoved(dir));
  if (const std::optional<PinnedNode> pending = pending_.Find(dir, name); pending.has_value()) {
    if (*pending) return ErrnoStatus(EEXIST, name);
  } else {
    const absl::Status found = backing_.StatAt(dir.path_fd.get(), name).status();
    if (found.ok()) return ErrnoStatus(EEXIST, name);
    if (StatusErrno(found) != ENOENT) return found;
  }
  SALIUS_ASSIGN_OR_RETURN(const fs::ChangeMarks marks, backing_.ChangeMarksOf(dir.path_fd.get()));
  return marks.immutable ? ErrnoStatus(EPERM, "an immutable directory") : absl::OkStatus();
}

absl::Status NameChecks::Removable(const Node& dir, const Node& victim) const {
  SALIUS_RETURN_IF_ERROR(CheckChangeable(backing_, dir));
  return CheckChangeable(backing_, victim);
}

absl::Status NameChecks::Rename(Node& from_dir, Node& to_dir, Node& moved, Node* other,
                                uint32_t how) const {
  SALIUS_RETURN_IF_ERROR(NotRemoved(to_dir));
  // Within one directory neither object contains the directory.
  const bool across = &from_dir != &to_dir;
  if (across) {
    SALIUS_ASSIGN_OR_RETURN(const bool into_itself, Contains(moved, to_dir));
    if (into_itself) return ErrnoStatus(EINVAL, "rename of a directory into itself");
  }
  SALIUS_RETURN_IF_ERROR(Removable(from_dir, moved));
  SALIUS_ASSIGN_OR_RETURN(const fs::ChangeMarks marks,
                          backing_.ChangeMarksOf(to_dir.path_fd.get()));
  if (marks.immutable) return ErrnoStatus(EPERM, "an immutable directory");
  if (other == nullptr) {
    return how == RENAME_EXCHANGE ? ErrnoStatus(ENOENT, "rename") : absl::OkStatus();
  }
  if (how == RENAME_NOREPLACE) return ErrnoStatus(EEXIST, "rename");
  SALIUS_RETURN_IF_ERROR(Removable(to_dir, *other));
  bool onto_parent = false;
  if (across) {
    SALIUS_ASSIGN_OR_RETURN(onto_parent, Contains(*other, from_dir));
  }
  if (how == RENAME_EXCHANGE) {
    return onto_parent ? ErrnoStatus(EINVAL, "exchange with a parent") : absl::OkStatus();
  }
  if (onto_parent) return ErrnoStatus(ENOTEMPTY, "rename");
  if (other == &moved) return absl::OkStatus();
  if (moved.is_dir() && !other->is_dir()) return ErrnoStatus(ENOTDIR, "rename");
  if (!moved.is_dir() && other->is_dir()) return ErrnoStatus(EISDIR, "rename");
  if (!other->is_dir()) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(const bool empty, pending_.IsEmpty(*other));
  return empty ? absl::OkStatus() : ErrnoStatus(ENOTEMPTY, "rename");
}

}  // namespace salius
