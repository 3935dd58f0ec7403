#include "recovery/name_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

namespace salius::recovery {
namespace {

// Returns OK for 0, otherwise the error in errno, with the path of `name` in `dirfd`.
absl::Status Result(int result, const std::string& what, int dirfd, const std::string& name) {
  if (result == 0) return absl::OkStatus();
  const int error = errno;
  return AtPath(ErrnoStatus(error, what), PathAt(dirfd, name));
}

}  // namespace

absl::Status Rename(int from_dir, const std::string& from, int to_dir, const std::string& to) {
  return Result(renameat(from_dir, from.c_str(), to_dir, to.c_str()),
                "rename " + from + " to " + to, to_dir, to);
}

absl::Status RenameNoReplace(int from_dir, const std::string& from, int to_dir,
                             const std::string& to) {
  return Result(renameat2(from_dir, from.c_str(), to_dir, to.c_str(), RENAME_NOREPLACE),
                "rename " + from + " to " + to, to_dir, to);
}

absl::Status LinkFd(int fd, int to_dir, const std::string& to) {
  return Result(linkat(fd, "", to_dir, to.c_str(), AT_EMPTY_PATH), "link to " + to,
                to_dir, to);
}

absl::StatusOr<UniqueFd> DuplicateFd(int fd) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return ErrnoStatus(errno, "duplicate a descriptor");
  return copy;
}

bool IsNotEmpty(const absl::Status& status) {
  const int err = StatusErrno(status);
  return err == ENOTEMPTY || err == EEXIST;
}

}  // namespace salius::recovery
