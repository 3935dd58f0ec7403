// The directory of a direct volume (docs/direct.md), apart from what it shares with the directory
// of a mount volume (storage/volume_config.h). It needs no privilege: ids are in the `user.`
// namespace, and the directory belongs to the caller.
//
// Errors keep the exact errno (common/file.h). Descriptors are those of `backing`. Threads: any.
#ifndef SALIUS_STORAGE_DIRECT_VOLUME_H_
#define SALIUS_STORAGE_DIRECT_VOLUME_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "storage/backing.h"
#include "storage/volume_config.h"

namespace salius {

// Returns FAILED_PRECONDITION, with the remedy, unless the directory `fd` lies on a file system that
// outlives a reboot. `path` is for the message.
absl::Status CheckNotVolatile(int fd, const std::string& path);
// The same, and the directory must belong to the caller and be writable.
absl::Status CheckDirectPlace(int fd, const std::string& path);

// Returns FAILED_PRECONDITION, which names the owner, when a process of this user must not change
// the volume: it is a direct volume, and its `.salius` belongs to another user. Root's files in it
// would lock its owner out.
absl::Status CheckDirectOwner(const VolumeDir& dir);

// Sets, reads and removes a `user.` attribute of the directory. FAILED_PRECONDITION where the file
// system has none.
absl::Status CheckUserXattrs(Backing& backing, int root_fd);

// Gives the root its id, which shows a volume that has lost its `.salius`.
absl::Status MarkDirectRoot(Backing& backing, int root_fd, const VolumeId& volume);

// Returns the name of the xattr that holds the root's id in a volume of this kind.
std::string RootIdXattr(VolumeKind kind);

// Returns the name of the xattr by which the directory is, or was, the root of a volume of either
// kind; "" for none. A caller without privilege does not see the mark of a mount volume.
absl::StatusOr<std::string> RootIdOf(Backing& backing, int root_fd);

// Returns the kind of the volume in the directory `root_fd`. Errors: as VolumeDir::Open().
absl::StatusOr<VolumeKind> KindOfVolume(Backing& backing, int root_fd, const std::string& path);

}  // namespace salius

#endif  // SALIUS_STORAGE_DIRECT_VOLUME_H_
