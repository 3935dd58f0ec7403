#include "storage/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "storage/fs_calls.h"

namespace salius {
namespace {

constexpr size_t kFileIdBytes = 8;

absl::Status Malformed(const std::string& why) {
  return absl::InvalidArgumentError("apply: " + why);
}

// Returns whether a mode of fallocate(2) leaves the same file when it is done twice.
bool ConvergingFallocate(uint64_t mode) {
  switch (mode) {
    case 0:
    case FALLOC_FL_KEEP_SIZE:
    case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE:
    case FALLOC_FL_ZERO_RANGE:
    case FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<bool> IsSymlink(Backing& backing, int fd) {
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing.StatAt(fd, ""));
  return S_ISLNK(st.st_mode);
}

// Sets the owner first: chown(2) clears suid and sgid and would undo the mode. Sets the times last:
// the other calls change them.
absl::Status SetAttributes(Backing& backing, int fd, const AttrBody& attr) {
  if ((attr.mask & (kAttrUid | kAttrGid)) != 0) {
    const uid_t uid = (attr.mask & kAttrUid) != 0 ? attr.uid : static_cast<uid_t>(-1);
    const gid_t gid = (attr.mask & kAttrGid) != 0 ? attr.gid : static_cast<gid_t>(-1);
    SALIUS_RETURN_IF_ERROR(backing.Chown(fd, uid, gid));
  }
  if ((attr.mask & kAttrMode) != 0) {
    // A symbolic link has no mode of its own.
    SALIUS_ASSIGN_OR_RETURN(const bool symlink, IsSymlink(backing, fd));
    if (!symlink) SALIUS_RETURN_IF_ERROR(backing.Chmod(fd, attr.mode));
  }
  if ((attr.mask & (kAttrAtime | kAttrMtime)) != 0) {
    timespec times[2];
    times[0].tv_sec = attr.atime_sec;
    times[0].tv_nsec = (attr.mask & kAttrAtime) != 0 ? attr.atime_nsec : UTIME_OMIT;
    times[1].tv_sec = attr.mtime_sec;
    times[1].tv_nsec = (attr.mask & kAttrMtime) != 0 ? attr.mtime_nsec : UTIME_OMIT;
    SALIUS_RETURN_IF_ERROR(backing.SetTimes(fd, times));
  }
  return absl::OkStatus();
}

// Creates the bare object, with the type and permissions of `mode`.
absl::Status MakeNode(Backing& backing, int dirfd, const std::string& name,
                      const CreateBody& create, mode_t mode) {
  const mode_t type = mode & S_IFMT;
  switch (type) {
    case S_IFDIR:
      return backing.MkdirAt(dirfd, name, mode & 07777);
    case S_IFLNK:
      return backing.Symlink(create.symlink_target, dirfd, name);
    case S_IFREG:
    case S_IFIFO:
    case S_IFSOCK:
    case S_IFCHR:
    case S_IFBLK:
      return backing.MakeNode(dirfd, name, mode, static_cast<dev_t>(create.rdev));
    default:
      return Malformed(absl::StrFormat("create with mode %o", create.mode));
  }
}

// Removes the object under `name`, but not the contents of a directory. In .salius/tmp an object is
// empty until it is complete and linked, so contents may be a user's data.
absl::Status RemoveOld(Backing& backing, int dirfd, const std::string& name) {
  const absl::StatusOr<struct stat> st = backing.StatAt(dirfd, name);
  if (absl::IsNotFound(st.status())) return absl::OkStatus();
  SALIUS_RETURN_IF_ERROR(st.status());
  return backing.Unlink(dirfd, name, S_ISDIR(st->st_mode) ? AT_REMOVEDIR : 0);
}

}  // namespace

absl::StatusOr<FileId> ReadFileId(Backing& backing, int fd) {
  const absl::StatusOr<std::string> value = backing.XattrValue(fd, kFileIdXattr);
  if (StatusErrno(value.status()) == ENODATA) return kNoFileId;
  SALIUS_RETURN_IF_ERROR(value.status());
  if (value->size() != kFileIdBytes || LoadU64(value->data()) == kNoFileId) {
    return absl::DataLossError(
        absl::StrFormat("%s is not a file id (%d bytes)", kFileIdXattr, value->size()));
  }
  return LoadU64(value->data());
}

absl::StatusOr<FileId> ReadFileId(int fd) { return ReadFileId(LinuxBacking(), fd); }

absl::Status WriteFileId(Backing& backing, int fd, FileId id) {
  SALIUS_CHECK(id != kNoFileId);
  char value[kFileIdBytes];
  StoreU64(value, id);
  return backing.SetXattr(fd, kFileIdXattr, {value, sizeof(value)});
}

absl::Status WriteFileId(int fd, FileId id) { return WriteFileId(LinuxBacking(), fd, id); }

absl::StatusOr<FileId> ReadFileIdAt(int dirfd, const std::string& name) {
  SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(dirfd, name, O_PATH | O_NOFOLLOW));
  return ReadFileId(fd.get());
}

absl::StatusOr<UniqueFd> Reopen(int path_fd, int flags) {
  SALIUS_ASSIGN_OR_RETURN(const std::string path, fs::ProcPath(path_fd));
  return OpenAt(AT_FDCWD, path, flags);
}

bool IsDataOp(Op op) { return op == Op::kWrite || op == Op::kTruncate || op == Op::kFallocate; }

bool IsNameOp(Op op) {
  return op == Op::kCreate || op == Op::kLink || op == Op::kUnlink || op == Op::kRename;
}

absl::Status ApplyData(Backing& backing, int fd, const RecordHeader& header,
                       std::string_view body) {
  if (header.op != Op::kWrite && !body.empty()) {
    return Malformed(absl::StrFormat("%s with a body of %d bytes", OpName(header.op), body.size()));
  }
  switch (header.op) {
    case Op::kWrite:
      if (header.arg0 > static_cast<uint64_t>(INT64_MAX) - body.size()) {
        return Malformed(absl::StrFormat("write at %d", header.arg0));
      }
      return backing.Pwrite(fd, body, header.arg0);
    case Op::kTruncate:
      return backing.Truncate(fd, header.arg0);
    case Op::kFallocate:
      if (!ConvergingFallocate(header.arg2)) {
        return Malformed(absl::StrFormat("fallocate mode %d", header.arg2));
      }
      return backing.Fallocate(fd, static_cast<int>(header.arg2), header.arg0, header.arg1);
    default:
      return Malformed(absl::StrFormat("%s is not a data operation", OpName(header.op)));
  }
}

absl::Status ApplyData(int fd, const RecordHeader& header, std::string_view body) {
  return ApplyData(LinuxBacking(), fd, header, body);
}

absl::Status ApplyAttr(Backing& backing, int fd, const RecordHeader& header,
                       std::string_view body) {
  switch (header.op) {
    case Op::kSetAttr: {
      SALIUS_ASSIGN_OR_RETURN(const AttrBody attr, AttrBody::Decode(body));
      return SetAttributes(backing, fd, attr);
    }
    case Op::kSetXattr:
    case Op::kRemoveXattr: {
      SALIUS_ASSIGN_OR_RETURN(const XattrBody xattr, XattrBody::Decode(body));
      if (xattr.name == kFileIdXattr) return Malformed("a file id never changes");
      return header.op == Op::kSetXattr ? backing.SetXattr(fd, xattr.name, xattr.value)
                                        : backing.RemoveXattr(fd, xattr.name);
    }
    default:
      return Malformed(absl::StrFormat("%s is not an attribute operation", OpName(header.op)));
  }
}

absl::Status ApplyAttr(int fd, const RecordHeader& header, std::string_view body) {
  return ApplyAttr(LinuxBacking(), fd, header, body);
}

absl::StatusOr<BackingFd> MakeObject(Backing& backing, int tmp_dirfd, const std::string& name,
                                     FileId id, const CreateBody& create) {
  // Most objects are root's and have no ACL: they are made as they are to be. Others are accessible
  // to root only at first.
  const mode_t made = create.xattrs.empty() ? create.mode : (create.mode & S_IFMT) | S_IRWXU;
  absl::Status status = MakeNode(backing, tmp_dirfd, name, create, made);
  if (absl::IsAlreadyExists(status)) {
    SALIUS_RETURN_IF_ERROR(RemoveOld(backing, tmp_dirfd, name));
    status = MakeNode(backing, tmp_dirfd, name, create, made);
  }
  SALIUS_RETURN_IF_ERROR(status);
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, backing.OpenAt(tmp_dirfd, name, O_PATH | O_NOFOLLOW));
  SALIUS_ASSIGN_OR_RETURN(const struct stat st, backing.Stat(fd.get()));
  bool has_mode = create.xattrs.empty() && st.st_mode == create.mode;
  if (st.st_uid != create.uid || st.st_gid != create.gid) {
    SALIUS_RETURN_IF_ERROR(backing.Chown(fd.get(), create.uid, create.gid));
    has_mode = has_mode && (create.mode & (S_ISUID | S_ISGID)) == 0;  // chown(2) takes these
  }
  for (const auto& [xattr_name, value] : create.xattrs) {
    if (xattr_name == kFileIdXattr) return Malformed("create with a file id among its xattrs");
    SALIUS_RETURN_IF_ERROR(backing.SetXattr(fd.get(), xattr_name, value));
  }
  // Set the mode after the ACL, which shows in the group bits too: the record has the final mode.
  if (!S_ISLNK(create.mode) && !has_mode) {
    SALIUS_RETURN_IF_ERROR(backing.Chmod(fd.get(), create.mode & 07777));
  }
  // Write the id last: an object with an id is whole. Recovery makes one without an id again.
  SALIUS_RETURN_IF_ERROR(WriteFileId(backing, fd.get(), id));
  return fd;
}

absl::StatusOr<UniqueFd> MakeObject(int tmp_dirfd, const std::string& name, FileId id,
                                    const CreateBody& create) {
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, MakeObject(LinuxBacking(), tmp_dirfd, name, id, create));
  return UniqueFd(fd.Release());
}

std::string IdName(FileId id) { return absl::StrFormat("%016x", id); }

}  // namespace salius
