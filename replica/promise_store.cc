#include "replica/promise_store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/strings.h"

namespace salius {
namespace {

std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Makes the directory and the missing ones above it; their names are on the disk afterwards.
absl::Status MakeSynced(const std::string& dir) {
  std::vector<std::string> parents;
  struct stat st;
  for (std::string path = dir; path != "/" && path != "." && stat(path.c_str(), &st) != 0;
       path = ParentOf(path)) {
    parents.push_back(ParentOf(path));
  }
  if (!parents.empty()) {
    SALIUS_RETURN_IF_ERROR(MakeDirs(parents.front()));
    // For its user alone. Another process may make it meanwhile.
    const absl::Status made = MkdirAt(AT_FDCWD, dir, 0700);
    if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  }
  for (const std::string& parent : parents) {
    SALIUS_ASSIGN_OR_RETURN(const UniqueFd fd, OpenAt(AT_FDCWD, parent, O_RDONLY | O_DIRECTORY));
    SALIUS_RETURN_IF_ERROR(FsyncFd(fd.get()));
  }
  return absl::OkStatus();
}

absl::Status Unusable(const std::string& dir, const absl::Status& why) {
  return absl::Status(
      why.code(), absl::StrFormat("%s, in which promises outlive a reboot: %s (give --state-dir a "
                                  "directory on a disk that this user may write to)",
                                  dir, Sv(why.message())));
}

}  // namespace

absl::StatusOr<std::unique_ptr<PromiseDir>> PromiseDir::Open(const std::string& dir) {
  if (const absl::Status made = MakeSynced(dir); !made.ok()) return Unusable(dir, made);
  std::unique_ptr<PromiseDir> store(new PromiseDir(dir));
  SALIUS_ASSIGN_OR_RETURN(store->dir_, OpenAt(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY));
  struct stat st;
  if (fstat(store->dir_.get(), &st) != 0) return Unusable(dir, ErrnoStatus(errno, "stat"));
  if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    // If another user took a promise back, two primaries could write.
    return Unusable(dir, absl::FailedPreconditionError(absl::StrFormat(
                             "it belongs to user %d and has mode %04o, so that others may change it",
                             st.st_uid, st.st_mode & 07777)));
  }
  absl::StatusOr<UniqueFd> lock =
      OpenAt(store->dir_.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
  if (!lock.ok()) return Unusable(dir, lock.status());
  store->lock_ = *std::move(lock);
  SALIUS_RETURN_IF_ERROR(LockExclusive(
      store->lock_.get(), absl::StrFormat("%s (each replica needs a --state-dir of its own)", dir)));
  struct statfs fs;
  store->on_tmpfs_ = fstatfs(store->dir_.get(), &fs) == 0 && fs.f_type == TMPFS_MAGIC;
  return store;
}

absl::StatusOr<std::string> PromiseDir::File::Read() {
  return ReadWholeFile(dir_.dir_.get(), file_.c_str());
}

absl::Status PromiseDir::File::Write(const std::string& bytes) {
  const absl::Status written =
      WriteFileAtomically(dir_.dir_.get(), file_, AsBytes(bytes), 0600);
  if (written.ok()) return written;
  return absl::Status(written.code(),
                      absl::StrFormat("write %s: %s", name(), Sv(written.message())));
}

void PromiseDir::File::SetAside() {
  // The old file is only for an administrator. When this fails, the new file simply replaces it.
  static_cast<void>(
      renameat(dir_.dir_.get(), file_.c_str(), dir_.dir_.get(), (file_ + ".damaged").c_str()));
}

std::string PromiseDir::File::name() const { return dir_.path_ + "/" + file_; }

}  // namespace salius
