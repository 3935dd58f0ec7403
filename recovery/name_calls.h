// The few system calls on names and descriptors that log/fs_calls.h does not have. Every
// Status keeps its errno (common/file.h).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"

namespace salius::recovery {

// Calls renameat(2): replaces the object that `to` names.
absl::Status Rename(int from_dir, const std::string& from, int to_dir, const std::string& to);

// Calls renameat2(2) with RENAME_NOREPLACE. ALREADY_EXISTS when `to` is taken.
absl::Status RenameNoReplace(int from_dir, const std::string& from, int to_dir,
                             const std::string& to);

// Calls linkat(2) for the object of `fd` (O_PATH allowed). ALREADY_EXISTS when `to` is taken.
absl::Status LinkFd(int fd, int to_dir, const std::string& to);

// Calls fcntl(2) with F_DUPFD_CLOEXEC.
absl::StatusOr<UniqueFd> DuplicateFd(int fd);

// Whether `status` says that a directory is not empty (ENOTEMPTY or EEXIST).
bool IsNotEmpty(const absl::Status& status);

}  // namespace salius::recovery
