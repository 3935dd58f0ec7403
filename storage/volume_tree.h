// The tree below a backing directory before it becomes a volume: other volumes in it and above it,
// and ids that an earlier volume gave to its files.
//
// Errors keep the exact errno (common/file.h). Descriptors are those of `backing`. Threads: any.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/backing.h"

namespace salius {

// Makes a directory of Salius's own: for root only, and without the ACLs and the setgid bit that a
// parent passes on. Every object made in it would get them too. Returns it open for reading.
absl::StatusOr<BackingFd> MakeOwnDir(Backing& backing, int dirfd, const std::string& name);

// Refuses a volume that holds the directory `root_fd`, or lies in it: its files would lose their
// ids. FAILED_PRECONDITION names it. `path` is the directory's, for the message.
absl::Status CheckNoOtherVolume(Backing& backing, int root_fd, const std::string& path);

// Removes the ids of an earlier volume from everything below `dirfd` on the file system `device`:
// they would be handed out a second time. Afterwards only `dirfd` itself may have one.
absl::Status StripFileIds(Backing& backing, int dirfd, dev_t device);

// Returns FAILED_PRECONDITION when the file system of `root_fd` has no trusted extended attributes.
absl::Status CheckTrustedXattrs(Backing& backing, int root_fd);

// Removes `name` in `dirfd` whatever it is, a directory with all its contents. OK when there is
// none. Does not follow symbolic links.
absl::Status RemoveTree(Backing& backing, int dirfd, const std::string& name);

}  // namespace salius
