// A file system in memory, for tests without root and without a disk. Conformance tests
// (backing_test.cc) run the same cases here and on ext4 and xfs.
//
// It has what the product relies on: inodes with links, directories, sparse data, extended
// attributes, ACL attributes that follow the mode, owners, modes, times, limits, free blocks and
// inodes, and quota figures. It differs from a kernel's file system in this:
//
// - No permissions, umask, mount points or followed symbolic links. Quotas are only figures,
//   because the kernel lets root past them. A default ACL is kept and not inherited.
// - Time is a count: each change is one microsecond later than the one before.
// - Reads do not change times of access.
// - It counts no complaints of itself, and its mount has no identity.
//
// A test can make the nth call of a kind fail, and cut the power. The disk then has the tree of the
// last SyncFs (or sync of a directory), with the data and attributes of files that were synced
// since. A name, and so a new file, reaches the disk with SyncFs only: less than a journal gives. A
// test that wants more has changes written back (WriteBack) at moments that it chooses.
//
// Threads: any. One lock, which is a leaf.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "storage/backing.h"
#include "tests/unit/storage/sparse_file.h"

namespace salius {

class MemoryBacking final : public Backing {
 public:
  // Limits; the defaults are those of an ext4 with blocks of 4096 bytes.
  struct Options {
    uint64_t bytes = uint64_t{256} << 20;
    uint64_t block_bytes = 4096;
    uint64_t inodes = 65536;
    uint64_t max_file_bytes = (uint64_t{1} << 44) - 4096;
    uint64_t max_links = 65000;
    size_t max_xattr_bytes = 4000;  // names and values of one object
    bool acls = true;
    size_t dir_batch = 500;  // entries of one ReadDirents
    // A sync of a file brings it to the disk alone: its name follows with a sync of a directory,
    // which brings no data.
    bool exact_syncs = false;
    bool reuse_inodes = false;  // a new object gets the lowest inode number that is free
  };
  // Kinds of calls.
  enum class Call {
    kOpen,
    kStat,
    kSetAttr,
    kGetXattr,
    kSetXattr,
    kRead,
    kWrite,
    kTruncate,
    kFallocate,
    kSync,
    kSpace,
    kMake,  // MkdirAt, MakeNode, Symlink, OpenTmpFile
    kUnlink,
    kLink,
    kRename,
    kReadDir,
    kCount,  // is not a call
  };
  // The changes that reach the disk without a sync.
  enum class WriteBack {
    kNothing,
    kJournal,  // names and attributes; a new file is empty
    kAll,      // the data of files too
  };
  // A test's decision about one call.
  struct Turn {
    WriteBack before = WriteBack::kNothing;  // happens first
    int error = 0;                           // the call fails with it; 0: it is made
  };

  MemoryBacking() : MemoryBacking(Options()) {}
  explicit MemoryBacking(const Options& options);

  // Returns the root directory, open for reading until this object is gone.
  int root() const { return root_; }
  // Makes a file in the root, and opens it for reading and writing; aborts when that fails.
  BackingFd NewFile(const std::string& name);
  // Makes the nth call of the kind from now on (1: the next) fail with `error`, once.
  void FailNth(Call call, int nth, int error);
  // Asks `decide` about each call from now on, on the caller's thread; empty: about none. `decide`
  // must not call this object.
  void OnEachCall(std::function<Turn(Call)> decide);
  // Calls `wait` before each descriptor is closed, on the thread that closes it, without a lock.
  // To be set while no other thread uses this object.
  void OnEachClose(std::function<void()> wait) { before_close_ = std::move(wait); }
  // Takes all pages of the file out of memory. A read or a write of a page brings it back.
  void DropPages(int fd);
  // Does so with all files.
  void DropAllPages();
  // Calls `between` in the middle of each read, on the thread that reads, without a lock: a kernel
  // reads page by page, and others write meanwhile. To be set while no other thread uses this
  // object.
  void OnEachRead(std::function<void()> between) { amid_read_ = std::move(between); }
  // Calls `before` before each change of times, on the thread that makes it, without a lock. To be
  // set while no other thread uses this object.
  void OnEachSetTimes(std::function<void()> before) { before_times_ = std::move(before); }
  // Calls `after` when attributes have been looked at, before they are returned, on the thread that
  // asked, without a lock. To be set while no other thread uses this object.
  void OnEachStat(std::function<void()> after) { after_stat_ = std::move(after); }
  // Lets all changes from now on be later than `time`, unless they are anyway.
  void AdvanceTo(const timespec& time);
  // Returns how many calls of the kind there were.
  uint64_t calls(Call call) const;
  // Writes back names and attributes (kJournal).
  void WriteBackJournal();
  // Writes back those blocks of the files on the disk for which `chosen` returns true.
  void WriteBackBlocks(const std::function<bool()>& chosen);
  // Ends every descriptor but root(), and brings back what is on the disk.
  void PowerCut();
  // Ends every descriptor but root(), as when the process dies; the page cache stays.
  void EndProcess();
  // Returns the number of descriptors that are open, root() aside.
  size_t open() const;
  // Switches quotas of the type on, and sets the limits of one owner in it.
  void SetQuota(fs::QuotaType type, uint32_t id, const fs::QuotaUse& limits);
  // Says from now on that quotas bind root too, as on XFS. They stay figures.
  void BindRootByQuota() { quota_binds_root_ = true; }
  // Sets the marks of chattr(1).
  void SetMarks(int fd, const fs::ChangeMarks& marks);
  // Makes a directory synchronous, or no longer (`chattr +D`).
  void SetDirsync(int fd, bool dirsync);
  // Returns whether the descriptor has O_NOATIME.
  bool IsNoAtime(int fd) const;

  absl::StatusOr<BackingFd> OpenAt(int dirfd, const std::string& name, int flags) override;
  absl::StatusOr<BackingFd> CreateAt(int dirfd, const std::string& name, int flags,
                                     mode_t mode) override;
  absl::Status Lock(int fd, std::string_view what) override;
  absl::StatusOr<BackingFd> OpenChild(int dirfd, const std::string& name) override;
  absl::StatusOr<BackingFd> OpenTmpFile(int dirfd) override;
  absl::StatusOr<BackingFd> Reopen(int fd, int flags) override;
  absl::StatusOr<FileHandle> HandleOf(int fd) override;
  absl::StatusOr<BackingFd> OpenByHandle(int mount_fd, const FileHandle& handle,
                                         int flags) override;
  void SetNoAtime(int fd, bool noatime) override;

  absl::StatusOr<struct stat> Stat(int fd) override;
  absl::StatusOr<struct stat> StatAt(int dirfd, const std::string& name) override;
  absl::StatusOr<std::optional<timespec>> BirthTimeOf(int fd) override;
  absl::StatusOr<fs::ChangeMarks> ChangeMarksOf(int fd) override;
  absl::StatusOr<std::string> PathOf(int fd) override;
  absl::StatusOr<std::string> ReadLinkOf(int fd) override;
  absl::Status Chown(int fd, uid_t uid, gid_t gid) override;
  absl::Status Chmod(int fd, mode_t mode) override;
  absl::Status SetTimes(int fd, const timespec times[2]) override;
  timespec FileTimeNow(int scratch) override;

  absl::StatusOr<std::string> XattrValue(int fd, const std::string& name) override;
  absl::StatusOr<std::vector<std::string>> XattrNames(int fd) override;
  absl::Status SetXattr(int fd, const std::string& name, std::string_view value) override;
  absl::Status RemoveXattr(int fd, const std::string& name) override;

  absl::StatusOr<size_t> Pread(int fd, void* out, size_t size, uint64_t offset) override;
  absl::Status Pwritev(int fd, absl::Span<const iovec> parts, uint64_t offset) override;
  absl::StatusOr<uint64_t> SizeOf(int fd) override;
  absl::Status PwritevSynced(int fd, absl::Span<const iovec> parts, uint64_t offset) override;
  absl::Status Truncate(int fd, uint64_t size) override;
  absl::Status Fallocate(int fd, int mode, uint64_t offset, uint64_t length) override;
  absl::StatusOr<uint64_t> Seek(int fd, uint64_t offset, int whence) override;
  bool ArePagesCached(int fd, uint64_t offset, uint64_t length) override;
  void BeginFetch(int fd, uint64_t offset, uint64_t length) override;
  absl::Status Fsync(int fd) override;
  absl::Status Fdatasync(int fd) override { return Fsync(fd); }
  absl::Status SyncFs(int fd) override;
  void DropCache(int) override {}

  absl::StatusOr<fs::FsKind> KindOf(int) override { return fs::FsKind(); }
  absl::StatusOr<uint64_t> ComplaintsOf(int) override;
  absl::StatusOr<uint64_t> MountIdOf(int) override;

  absl::StatusOr<struct statvfs> StatVfs(int fd) override;
  absl::StatusOr<FsSpace> FreeSpace(int fd) override;
  bool SizeFits(int fd, uint64_t size) override;
  bool CopiesOnWrite(int) override { return false; }
  bool MayTakeBlocksBack(int) override { return false; }
  uint64_t SharedBlockBytes(int) override { return 0; }
  bool IsShared(int, uint64_t) override { return false; }
  uint64_t UnallocatedBytes(int fd, uint64_t offset, uint64_t length) override;
  std::optional<fs::QuotaUse> QuotaOf(int fd, fs::QuotaType type, uint32_t id) override;
  bool QuotaBindsRoot(int) override { return quota_binds_root_; }

  absl::Status MkdirAt(int dirfd, const std::string& name, mode_t mode) override;
  absl::Status MakeNode(int dirfd, const std::string& name, mode_t mode, dev_t device) override;
  absl::Status Symlink(const std::string& target, int dirfd, const std::string& name) override;
  absl::Status Unlink(int dirfd, const std::string& name, int flags) override;
  absl::Status LinkFd(int fd, int dirfd, const std::string& name) override;
  absl::Status Rename(int from_dirfd, const std::string& from, int to_dirfd, const std::string& to,
                      unsigned flags) override;

  absl::StatusOr<std::vector<std::string>> ListDir(int dirfd) override;
  absl::StatusOr<bool> IsEmptyDir(int dirfd) override;
  absl::StatusOr<bool> IsPlainDir(int) override { return true; }
  absl::StatusOr<bool> IsSyncDir(int dirfd) override;
  absl::Status InheritSync(int from, int dirfd) override;
  absl::StatusOr<std::vector<fs::RawDirEntry>> ReadDirents(int fd) override;
  absl::Status SeekDir(int fd, uint64_t offset) override;

 private:
  struct Entry {
    ino_t ino = 0;
    uint64_t cookie = 0;  // its offset in listings; grows with each new name
  };
  struct Inode {
    explicit Inode(uint64_t block_bytes) : data(block_bytes) {}

    ino_t ino = 0;
    mode_t mode = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    uint64_t links = 0;
    dev_t device = 0;
    ino_t parent = 0;                      // of a directory
    std::map<std::string, Entry> entries;  // of a directory
    std::string target;                    // of a symbolic link
    SparseFile data;                       // of a directory: one block
    std::set<uint64_t> missing;            // pages that are not in memory
    std::map<std::string, std::string> xattrs;
    timespec atime{}, mtime{}, ctime{}, btime{};
    fs::ChangeMarks marks;
    bool dirsync = false;
    bool linkable = false;  // made without a name, and may get one

    bool is_dir() const { return S_ISDIR(mode); }
    bool is_marked() const { return marks.immutable || marks.append_only; }
  };
  struct Tree {
    std::map<ino_t, Inode> inodes;
    uint64_t used_blocks = 0;
  };
  struct Open {
    ino_t ino = 0;
    int flags = 0;
    uint64_t position = 0;  // in a directory
    bool locked = false;
  };
  using Owner = std::pair<fs::QuotaType, uint32_t>;
  static constexpr ino_t kRootIno = 2;

  void Close(int number) override;

  // memory_backing.cc
  // Counts a call. Returns the error that a test planned for it.
  absl::Status Begin(Call call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether they are one object. Inode numbers may be used again, times of birth are not.
  static bool IsSame(const Inode& a, const Inode& b);
  void BringToDisk(WriteBack what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Return the open descriptor, or its object; null when it is not open.
  Open* Find(int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Inode* FindInode(int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the object that `name` in the directory has; "" and "." are the directory.
  absl::StatusOr<Inode*> Walk(int dirfd, const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<BackingFd> OpenInode(const Inode& inode, int flags)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct stat StatOf(const Inode& inode) const;
  timespec Tick() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the object after checks for a change of its attributes.
  absl::StatusOr<Inode*> Changeable(int fd, const char* what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes an object that has no name and no descriptor.
  void Collect(ino_t ino) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckXattr(const Inode& inode, const std::string& name) const;
  absl::Status StoreAcl(Inode& inode, const std::string& name, std::string_view value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // memory_data.cc
  uint64_t FreeBlocks() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the regular file of a descriptor open for writing; `not_writable` otherwise.
  absl::StatusOr<Inode*> Writable(int fd, int not_writable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes what there is room for.
  absl::StatusOr<size_t> ReadPart(int fd, void* out, size_t size, uint64_t offset);
  void DropPagesOf(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fetched(Inode& inode, uint64_t offset, uint64_t length) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status WritePart(Inode& inode, std::string_view data, uint64_t offset)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteDataChange(Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // memory_names.cc
  // Returns the directory in which `name` may be made or removed.
  absl::StatusOr<Inode*> DirOf(int dirfd, const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Inode*> NewInode(const Inode& dir, mode_t mode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Inode*> Make(int dirfd, const std::string& name, mode_t mode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Bind(Inode& dir, const std::string& name, Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Unbind(Inode& dir, const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Checks that an object may lose its name, and may be replaced by `moved`.
  absl::Status CheckRemovable(const Inode& dir, const Inode& inode) const;
  absl::Status CheckReplaceable(const Inode& victim, const Inode& moved) const;
  bool IsBelow(const Inode& inode, const Inode& dir) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable absl::Mutex mu_;
  Tree now_ ABSL_GUARDED_BY(mu_), disk_ ABSL_GUARDED_BY(mu_);
  std::map<int, Open> open_ ABSL_GUARDED_BY(mu_);
  std::map<ino_t, uint64_t> opens_ ABSL_GUARDED_BY(mu_);  // descriptors of each object
  int next_fd_ ABSL_GUARDED_BY(mu_) = 1 << 24;            // no number of the kernel's
  ino_t next_ino_ ABSL_GUARDED_BY(mu_) = kRootIno;
  uint64_t next_cookie_ ABSL_GUARDED_BY(mu_) = 3;  // 1 and 2 are "." and ".."
  int64_t now_us_ ABSL_GUARDED_BY(mu_) = int64_t{1'700'000'000} * 1'000'000;
  std::array<uint64_t, static_cast<size_t>(Call::kCount)> calls_ ABSL_GUARDED_BY(mu_){};
  std::map<std::pair<Call, uint64_t>, int> planned_ ABSL_GUARDED_BY(mu_);  // errors
  std::function<Turn(Call)> decide_ ABSL_GUARDED_BY(mu_);
  std::function<void()> before_close_;
  std::function<void()> amid_read_;
  std::function<void()> after_stat_;
  std::function<void()> before_times_;
  std::map<Owner, fs::QuotaUse> quotas_ ABSL_GUARDED_BY(mu_);
  std::set<fs::QuotaType> quota_types_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> quota_binds_root_{false};
  int root_ = -1;
};

}  // namespace salius
