#include "client/volume/open_files.h"

#include <errno.h>
#include <fcntl.h>

#include <chrono>
#include <memory>
#include <utility>

#include "common/check.h"
#include "common/file.h"
#include "common/log.h"

namespace salius {
namespace {

// The kernel reports a close when close(2) has returned already: within this time.
constexpr std::chrono::milliseconds kCloseIsReported{40};
// close(2) of a backing file may wait for the disk. It hangs if it gives no descriptor back for
// this long.
constexpr std::chrono::seconds kHanging{1};

}  // namespace

absl::Status OpenFiles::CheckRoom(uid_t opener) {
  if (file_fds_.HasRoom(opener)) return absl::OkStatus();
  if (file_fds_.WaitForRoom(opener, kCloseIsReported, kHanging)) return absl::OkStatus();
  return NoRoom(opener);
}

absl::Status OpenFiles::NoRoom(uid_t opener) {
  if (file_fds_.AllTaken()) {
    if (!logged_no_room_.exchange(true)) {
      SLOG_WARN(
          "no more files can be opened: those that are open have all {} descriptors that they may "
          "have. Close some, or mount again with a higher limit (ulimit -n, LimitNOFILE=)",
          file_fds_.limit());
    }
  } else if (!logged_share_.exchange(true)) {
    SLOG_WARN(
        "user {} can open no more files: it has as many of the {} descriptors for open files as "
        "are left for others. Close some, or mount again with a higher limit (ulimit -n, "
        "LimitNOFILE=)",
        opener, file_fds_.limit());
  }
  return ErrnoStatus(ENFILE, "open");
}

absl::StatusOr<Handle*> OpenFiles::Open(Node& node, int flags, uid_t opener) {
  SALIUS_RETURN_IF_ERROR(CheckRoom(opener));
  return OpenChecked(node, flags, opener);
}

absl::StatusOr<Handle*> OpenFiles::OpenChecked(Node& node, int flags, uid_t opener) {
  if (node.is_dir()) return ErrnoStatus(EISDIR, "open");
  if (S_ISLNK(node.type)) return ErrnoStatus(ELOOP, "open");
  if (!node.is_regular()) return ErrnoStatus(ENXIO, "open");
  auto handle = std::make_unique<Handle>(node, flags);
  if (handle->writable()) SALIUS_RETURN_IF_ERROR(health_.Names());
  SALIUS_RETURN_IF_ERROR(Add(*handle));
  absl::Status opened = OpenBacking(*handle, opener);
  if (opened.ok() && (flags & O_TRUNC) != 0 && handle->writable())
    opened = files_.Truncate(node, 0);
  if (!opened.ok()) {
    Release(handle.release());
    return opened;
  }
  return handle.release();
}

absl::StatusOr<Handle*> OpenFiles::OpenDir(Node& node, uid_t opener) {
  if (!node.is_dir()) return ErrnoStatus(ENOTDIR, "opendir");
  SALIUS_RETURN_IF_ERROR(CheckRoom(opener));
  const int atime = file_fds_.AtimeFlag(FileFds::Kind::kDir);
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd,
                          backing_.OpenAt(node.path_fd.get(), ".", O_RDONLY | O_DIRECTORY | atime));
  auto handle = std::make_unique<Handle>(node, O_RDONLY | O_DIRECTORY);
  handle->fd = file_fds_.Share(std::move(fd), FileFds::Kind::kDir, opener);
  SALIUS_RETURN_IF_ERROR(Add(*handle));
  return handle.release();
}

absl::Status OpenFiles::Add(Handle& handle) {
  absl::MutexLock lock(&handle.node.state);
  if (handle.node.given_up) return ErrnoStatus(ESTALE, "open");
  table_.Pin(handle.node);
  ++handle.node.handles;
  return absl::OkStatus();
}

absl::Status OpenFiles::OpenBacking(Handle& handle, uid_t opener) {
  if (handle.writable()) {
    SALIUS_ASSIGN_OR_RETURN(handle.fd, fds_.ForWriting(handle.node, opener));
    return absl::OkStatus();
  }
  const bool asked = (handle.flags & O_NOATIME) != 0;  // has a descriptor of its own
  const FileFds::Kind kind = asked ? FileFds::Kind::kNoAtime : FileFds::Kind::kFile;
  if (!asked) {
    absl::MutexLock lock(&handle.node.state);
    handle.fd = handle.node.seen_records().rw_fd;
  }
  if (handle.fd != nullptr) return absl::OkStatus();
  SALIUS_ASSIGN_OR_RETURN(BackingFd fd, backing_.Reopen(handle.node.path_fd.get(),
                                                        O_RDONLY | file_fds_.AtimeFlag(kind)));
  handle.fd = file_fds_.Share(std::move(fd), kind, opener);
  return absl::OkStatus();
}

void OpenFiles::Release(Handle* handle) {
  Node& node = handle->node;
  bool last = false;
  {
    absl::MutexLock lock(&node.state);
    --node.handles;
    last = node.handles == 0;
  }
  delete handle;
  if (last) {
    links_.DropOf(node);
    NodeFds::CloseIdle(node);
  }
  table_.Unpin(node);
}

}  // namespace salius
