// The file systems and directories that can hold a volume's backing directory.
#ifndef SALIUS_STORAGE_VOLUME_FS_H_
#define SALIUS_STORAGE_VOLUME_FS_H_

#include <string>

#include "absl/status/status.h"
#include "common/file_system.h"

namespace salius {

// Returns FAILED_PRECONDITION when the file system that `fd` lies on is mounted read-only, or is
// FUSE, a network file system or an overlay. On those a sync says nothing about a disk of this
// host, or another host can write behind our back. `path` is for the message.
absl::Status CheckBackingFileSystem(int fd, const std::string& path);
absl::Status CheckBackingKind(const fs::FsKind& kind, const std::string& path);

// Returns FAILED_PRECONDITION for the root directory and others that the system itself uses: none
// may become a volume. `path` is absolute, without links.
absl::Status CheckNoSystemDirectory(const std::string& path);

}  // namespace salius

#endif  // SALIUS_STORAGE_VOLUME_FS_H_
