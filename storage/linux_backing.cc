// The kernel's file systems: each method is one call of common/, fs_calls.h or
// block_calls.h.
#include <fcntl.h>
#include <unistd.h>

#include <memory>

#include "absl/types/span.h"
#include "common/bulk_writer.h"
#include "common/check.h"
#include "common/ext4_watch.h"
#include "common/file.h"
#include "common/file_system.h"
#include "common/host.h"
#include "storage/backing.h"
#include "storage/block_calls.h"
#include "storage/fs_calls.h"

namespace salius {
namespace {

using fs::QuotaType;
using fs::QuotaUse;
using fs::RawDirEntry;
using std::string;

absl::StatusOr<BackingFd> Wrap(absl::StatusOr<UniqueFd> fd) {
  if (!fd.ok()) return fd.status();
  return BackingFd(*std::move(fd));
}

class Linux final : public Backing {
 public:
  absl::StatusOr<BackingFd> OpenAt(int dirfd, const string& name, int flags) override {
    return Wrap(salius::OpenAt(dirfd, name, flags));
  }
  absl::StatusOr<BackingFd> CreateAt(int dirfd, const string& name, int flags,
                                     mode_t mode) override {
    return Wrap(salius::OpenAt(dirfd, name, flags | O_CREAT, mode));
  }
  absl::Status Lock(int fd, std::string_view what) override { return LockExclusive(fd, what); }
  absl::StatusOr<BackingFd> OpenChild(int dirfd, const string& name) override {
    return Wrap(fs::OpenChild(dirfd, name));
  }
  absl::StatusOr<BackingFd> OpenTmpFile(int dirfd) override {
    return Wrap(salius::OpenAt(dirfd, ".", O_TMPFILE | O_RDWR, 0600));
  }
  absl::StatusOr<BackingFd> Reopen(int fd, int flags) override {
    SALIUS_ASSIGN_OR_RETURN(const string path, fs::ProcPath(fd));
    return Wrap(salius::OpenAt(AT_FDCWD, path, flags));
  }
  absl::StatusOr<FileHandle> HandleOf(int fd) override {
    return salius::HandleOf(fd, "", AT_EMPTY_PATH);
  }
  absl::StatusOr<BackingFd> OpenByHandle(int mount_fd, const FileHandle& handle,
                                         int flags) override {
    return Wrap(salius::OpenByHandle(mount_fd, handle, flags));
  }
  void SetNoAtime(int fd, bool noatime) override {
    const int flags = ::fcntl(fd, F_GETFL);
    const int wanted = (flags & ~O_NOATIME) | (noatime ? O_NOATIME : 0);
    if (flags != -1 && wanted != flags) static_cast<void>(::fcntl(fd, F_SETFL, wanted));
  }

  absl::StatusOr<struct stat> Stat(int fd) override { return fs::Stat(fd); }
  absl::StatusOr<struct stat> StatAt(int dirfd, const string& name) override {
    return fs::StatAt(dirfd, name);
  }
  absl::StatusOr<std::optional<timespec>> BirthTimeOf(int fd) override {
    return fs::BirthTimeOf(fd);
  }
  absl::StatusOr<fs::ChangeMarks> ChangeMarksOf(int fd) override { return fs::ChangeMarksOf(fd); }
  absl::StatusOr<string> PathOf(int fd) override { return fs::PathOf(fd); }
  absl::StatusOr<string> ReadLinkOf(int fd) override { return fs::ReadLinkOf(fd); }
  absl::Status Chown(int fd, uid_t uid, gid_t gid) override { return fs::Chown(fd, uid, gid); }
  absl::Status Chmod(int fd, mode_t mode) override { return fs::Chmod(fd, mode); }
  absl::Status SetTimes(int fd, const timespec times[2]) override {
    return fs::SetTimes(fd, times);
  }
  timespec FileTimeNow(int scratch) override { return fs::FileTimeNow(scratch); }

  absl::StatusOr<string> XattrValue(int fd, const string& name) override {
    return fs::XattrValue(fd, name);
  }
  absl::StatusOr<std::vector<string>> XattrNames(int fd) override { return fs::XattrNames(fd); }
  absl::Status SetXattr(int fd, const string& name, std::string_view value) override {
    return fs::SetXattr(fd, name, value);
  }
  absl::Status RemoveXattr(int fd, const string& name) override {
    return fs::RemoveXattr(fd, name);
  }

  absl::StatusOr<uint64_t> SizeOf(int fd) override { return FileSize(fd); }
  absl::StatusOr<size_t> Pread(int fd, void* out, size_t size, uint64_t offset) override {
    return PreadFull(fd, out, size, static_cast<int64_t>(offset));
  }
  absl::Status Pwritev(int fd, absl::Span<const iovec> parts, uint64_t offset) override {
    return PwritevFull(fd, parts, static_cast<int64_t>(offset));
  }
  absl::Status PwritevSynced(int fd, absl::Span<const iovec> parts, uint64_t offset) override {
    return PwritevFull(fd, parts, static_cast<int64_t>(offset), RWF_DSYNC);
  }
  LongWrite LongWrites(int fd) override {
    return [writer = std::make_shared<BulkWriter>(fd)](absl::Span<const iovec> parts,
                                                       uint64_t offset) {
      return writer->Write(parts, static_cast<int64_t>(offset));
    };
  }
  absl::Status Truncate(int fd, uint64_t size) override { return fs::Truncate(fd, size); }
  absl::Status Fallocate(int fd, int mode, uint64_t offset, uint64_t length) override {
    return fs::Fallocate(fd, mode, offset, length);
  }
  absl::StatusOr<uint64_t> Seek(int fd, uint64_t offset, int whence) override {
    return fs::Seek(fd, offset, whence);
  }
  bool ArePagesCached(int fd, uint64_t offset, uint64_t length) override {
    return fs::ArePagesCached(fd, offset, length);
  }
  void BeginFetch(int fd, uint64_t offset, uint64_t length) override {
    fs::BeginFetch(fd, offset, length);
  }
  absl::Status Fsync(int fd) override { return FsyncFd(fd); }
  absl::Status Fdatasync(int fd) override { return FdatasyncFd(fd); }
  absl::Status SyncFs(int fd) override { return salius::SyncFs(fd); }
  void DropCache(int fd) override { fs::DropCache(fd); }

  absl::StatusOr<fs::FsKind> KindOf(int fd) override { return fs::KindOf(fd); }
  absl::StatusOr<uint64_t> ComplaintsOf(int fd) override { return Ext4Complaints(fd); }
  absl::StatusOr<uint64_t> MountIdOf(int fd) override { return UniqueMountId(fd); }

  absl::StatusOr<struct statvfs> StatVfs(int fd) override { return fs::StatVfs(fd); }
  absl::StatusOr<FsSpace> FreeSpace(int fd) override { return StatfsFree(fd); }
  bool SizeFits(int fd, uint64_t size) override { return fs::SizeFits(fd, size); }
  bool CopiesOnWrite(int fd) override { return fs::CopiesOnWrite(fd); }
  bool MayTakeBlocksBack(int fd) override { return fs::MayTakeBlocksBack(fd); }
  uint64_t SharedBlockBytes(int root) override { return fs::SharedBlockBytes(root); }
  bool IsShared(int fd, uint64_t at) override { return fs::IsShared(fd, at); }
  uint64_t UnallocatedBytes(int fd, uint64_t offset, uint64_t length) override {
    return fs::UnallocatedBytes(fd, offset, length);
  }
  std::optional<QuotaUse> QuotaOf(int fd, QuotaType type, uint32_t id) override {
    return fs::QuotaOf(fd, type, id);
  }
  bool QuotaBindsRoot(int fd) override { return fs::QuotaBindsRoot(fd); }

  absl::Status MkdirAt(int dirfd, const string& name, mode_t mode) override {
    return salius::MkdirAt(dirfd, name, mode);
  }
  absl::Status MakeNode(int dirfd, const string& name, mode_t mode, dev_t device) override {
    return fs::MakeNode(dirfd, name, mode, device);
  }
  absl::Status Symlink(const string& target, int dirfd, const string& name) override {
    return fs::Symlink(target, dirfd, name);
  }
  absl::Status Unlink(int dirfd, const string& name, int flags) override {
    return fs::Unlink(dirfd, name, flags);
  }
  absl::Status LinkFd(int fd, int dirfd, const string& name) override {
    return fs::LinkFd(fd, dirfd, name);
  }
  absl::Status Rename(int from_dirfd, const string& from, int to_dirfd, const string& to,
                      unsigned flags) override {
    return fs::Rename(from_dirfd, from, to_dirfd, to, flags);
  }

  absl::StatusOr<std::vector<string>> ListDir(int dirfd) override { return fs::ListDir(dirfd); }
  absl::StatusOr<bool> IsEmptyDir(int dirfd) override { return fs::IsEmptyDir(dirfd); }
  absl::StatusOr<bool> IsPlainDir(int dirfd) override { return fs::IsPlainDir(dirfd); }
  absl::StatusOr<bool> IsSyncDir(int dirfd) override { return fs::IsSyncDir(dirfd); }
  absl::Status InheritSync(int from, int dirfd) override { return fs::InheritSync(from, dirfd); }
  absl::StatusOr<std::vector<RawDirEntry>> ReadDirents(int fd) override {
    return fs::ReadDirents(fd);
  }
  absl::Status SeekDir(int fd, uint64_t offset) override { return fs::SeekDir(fd, offset); }

 private:
  void Close(int number) override { static_cast<void>(UniqueFd(number)); }
};

}  // namespace

Backing& LinuxBacking() {
  static Backing& backing = *new Linux;  // outlives every thread
  return backing;
}

}  // namespace salius
