// Applying records to the backing file system: the one set of primitives that the volume's applier
// and recovery's replay share, so that both end with the same bytes, owners, modes and names.
//
// All are idempotent (docs/log-format.md, "Bodies"): a second run changes nothing more. All
// run with root's rights; owners and modes come from the record, never from the caller. Errors
// carry the exact errno (common/file.h).
//
// The forms without a Backing act on the kernel's file systems, for recovery and the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file.h"
#include "common/ids.h"
#include "log/record.h"
#include "storage/backing.h"

namespace salius {

// The xattr that holds a file's id: 8 bytes little-endian, in the trusted namespace so that it
// works on every file type and no user can forge it. Hidden by the mount.
inline constexpr char kFileIdXattr[] = "trusted.salius.id";

// The file system removes it whenever a file's data changes.
inline constexpr char kCapabilityXattr[] = "security.capability";

// Returns the file's id, kNoFileId when it has none. `fd` may be O_PATH (then /proc/self/fd is
// used). DATA_LOSS when the attribute has a wrong size.
absl::StatusOr<FileId> ReadFileId(Backing& backing, int fd);
absl::StatusOr<FileId> ReadFileId(int fd);
absl::Status WriteFileId(Backing& backing, int fd, FileId id);
absl::Status WriteFileId(int fd, FileId id);
// Returns the id of a name in a directory, like ReadFileId, not following symlinks.
absl::StatusOr<FileId> ReadFileIdAt(int dirfd, const std::string& name);

// Reopens an O_PATH descriptor with `flags` through /proc/self/fd.
absl::StatusOr<UniqueFd> Reopen(int path_fd, int flags);

// Returns true for kWrite, kTruncate, kFallocate: the ops that "on disk up to" (kOnDisk) lets
// replay skip.
bool IsDataOp(Op op);
// Returns true for kCreate, kLink, kUnlink, kRename: the ops that change names.
bool IsNameOp(Op op);

// Applies a data op to `fd`, which must be open for writing.
absl::Status ApplyData(Backing& backing, int fd, const RecordHeader& header,
                       std::string_view body);
absl::Status ApplyData(int fd, const RecordHeader& header, std::string_view body);
// Applies kSetAttr, kSetXattr, kRemoveXattr to `fd` (O_PATH allowed, also symlinks and special
// files). Removing an xattr that is not there is OK. Order inside one kSetAttr: owner, mode, times.
absl::Status ApplyAttr(Backing& backing, int fd, const RecordHeader& header,
                       std::string_view body);
absl::Status ApplyAttr(int fd, const RecordHeader& header, std::string_view body);

// Makes the object that `create` describes as `name` in directory `tmp_dirfd` (.salius/tmp), with
// owner, mode and xattrs; it gets its id last. An older object of that name is removed first.
// Returns it open O_PATH.
absl::StatusOr<BackingFd> MakeObject(Backing& backing, int tmp_dirfd, const std::string& name,
                                     FileId id, const CreateBody& create);
absl::StatusOr<UniqueFd> MakeObject(int tmp_dirfd, const std::string& name, FileId id,
                                    const CreateBody& create);
// Returns the name of `id` in .salius/tmp and .salius/open: 16 hex digits.
std::string IdName(FileId id);

}  // namespace salius
