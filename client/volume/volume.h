// A volume in use: files, directories and their patches on top of a record stream. The fronts (FUSE
// now; the preload library and the C API later) are thin: they translate requests to these calls
// and results back.
//
// Model
// - A Node is one file or directory that the front knows (an inode in use). It holds an O_PATH
// descriptor
//   of the backing object, its file id (0 until its first change), and its patches.
// - A patch is an issued data record (write, truncate, fallocate) not yet applied. Reads and
// attributes see
//   patches: content = backing file, then the patches in seq order. Size is kept in the node while
//   patches or attributes are pending.
// - Every change is a record. Data and attribute records are issued under the node's lock, which is
// why seq
//   order is the order of the file's stream. A name operation (create, link, unlink, rename) holds
//   the locks of its directories from check to apply (docs/mount-internals.md): it checks that it
//   can succeed, issues its record, waits until that is durable and applied in its turn, and
//   returns the result; a failed apply issues a cancel record, waits for it to be durable, then
//   returns the error.
// - Bulk: past `bulk_limit_bytes` of plain writes since the file's last sync, the file is bulk: its
// writes go
//   to the backing file at once (after its patches are applied) and are not logged. Its next Fsync:
//   apply the file's records <= s, fsync the backing file, issue kOnDisk(file, s), wait until
//   that is durable, return; then the file is no longer bulk (I3).
// - Space: a write that extends or fills holes is refused with ENOSPC before it is stamped when
// free blocks
//   less what unapplied records may need less a reserve do not hold it; EDQUOT by quotactl of the
//   owner when quotas are on; EFBIG by RLIMIT_FSIZE (kernel) and the file system's maximum.
//
// Errors: absl::Status with the exact errno in its payload (common/file.h, StatusErrno).
// Threads: every method may be called from any thread. Lock order: see client/volume/node.h. Held
// over waits are only a name operation's directory locks and, for what is waited for in the plain
// way (attributes, the end of bulk, space when the disk is nearly full), the lock of the one file.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/session/record_stream.h"
#include "common/ids.h"
#include "storage/volume_config.h"

namespace salius {

// Who asks. Owner and group of new objects; permission checks are the front's (the kernel's
// default_permissions on a mount).
struct Caller {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t umask = 0;  // applied by the volume unless the directory has a default ACL
  std::vector<gid_t>
      groups;  // supplementary; only for keeping S_ISGID on a file in a setgid directory
  bool sgid_checked = false;  // it may keep S_ISGID there: who asks has looked at its groups
};

class Node;    // an inode in use; owned by the volume, alive while its lookup count is above zero
class Handle;  // an open file or directory

struct Entry {
  Node* node = nullptr;  // lookup count was raised by one
  struct stat attr {};
  bool provisional = false;  // of `attr`: see GetAttr
};

struct DirEntry {
  std::string name;
  uint64_t next_offset = 0;
  ino_t ino = 0;
  uint32_t type = 0;  // S_IFMT bits
};

// SetAttr: which fields of `stat` count.
enum SetAttrMask : uint32_t {
  kSetMode = 1u << 0,
  kSetUid = 1u << 1,
  kSetGid = 1u << 2,
  kSetSize = 1u << 3,
  kSetAtime = 1u << 4,
  kSetMtime = 1u << 5,
  kSetAtimeNow = 1u << 6,
  kSetMtimeNow = 1u << 7,
};

struct VolumeOptions {
  VolumeConfig config;     // after mount options were applied
  std::string mountpoint;  // for status
  int64_t spin_ns = 0;     // StreamOptions
  bool insecure = false;   // StreamOptions
  // Reading a file, or a directory, leaves its access time.
  bool noatime = false;
  bool nodiratime = false;
};

class Volume {
 public:
  // Takes a clean volume (recovery, when needed, has been done by the caller: client/fuse/main.cc
  // calls recovery/) and starts a session. `dir` holds the lock.
  // `start` starts the session's record stream.
  static absl::StatusOr<std::unique_ptr<Volume>> Open(VolumeDir dir, VolumeOptions options,
                                                      StartRecordStream start);
  // Without Close() it is like a crash of the process.
  ~Volume();

  Node* root();
  // Changes the options of the same names, for open files and directories, too. Any thread.
  void SetNoAtime(bool noatime, bool nodiratime);
  // RecordStream::ManyWait.
  bool ManyWait() const;
  // Stable number for the front (FUSE nodeid may simply be the pointer); `ino` is the backing inode
  // number.
  static ino_t InoOf(const Node& node);
  // Of all nodes of a session only one has this number; the root's is 0.
  static uint64_t Generation(const Node& node);
  // One word per node for the front, 0 at first, kept as long as the node lives; the volume never
  // looks at it. (The FUSE front counts opens there and remembers how the inode is cached.)
  static std::atomic<uint64_t>& FrontWord(Node& node);

  // ---- names. `.salius` in the root does not exist for callers: ENOENT, and EPERM/EACCES to make
  // it.
  absl::StatusOr<Entry> Lookup(Node& dir, std::string_view name);
  void Forget(Node& node, uint64_t lookups);
  absl::StatusOr<Entry> MakeNode(Node& dir, std::string_view name, mode_t mode, dev_t rdev,
                                 const Caller&);
  absl::StatusOr<Entry> MakeDir(Node& dir, std::string_view name, mode_t mode, const Caller&);
  absl::StatusOr<Entry> Symlink(Node& dir, std::string_view name, std::string_view target,
                                const Caller&);
  absl::StatusOr<Entry> Link(Node& node, Node& dir, std::string_view name);
  absl::Status Unlink(Node& dir, std::string_view name);
  absl::Status RemoveDir(Node& dir, std::string_view name);
  // flags: those of renameat2(2). With RENAME_WHITEOUT the caller owns what is left at `from`.
  absl::Status Rename(Node& from_dir, std::string_view from, Node& to_dir, std::string_view to,
                      uint32_t flags, const Caller& = Caller());
  absl::StatusOr<std::string> ReadLink(Node& node);

  // ---- attributes
  // Waits a moment until what was written is applied, so that the times are the file's own. When
  // the disk is slower: size and times as far as known, `*provisional` becomes true, and they may
  // change by themselves when the records are applied.
  absl::StatusOr<struct stat> GetAttr(Node& node, bool* provisional = nullptr);
  // When the backing file was made; nothing where its file system does not keep that. (Recovery
  // makes files again.)
  absl::StatusOr<std::optional<timespec>> BirthTime(Node& node);
  // Truncation waits like a write does (not at all, unless `sync`).
  absl::StatusOr<struct stat> SetAttr(Node& node, uint32_t mask, const struct stat& want,
                                      bool* provisional = nullptr);
  // EDQUOT when the group's quota leaves no room for the file. For callers who are not privileged,
  // before they give it to the group.
  absl::Status CheckNewGroup(Node& node, gid_t gid);
  absl::StatusOr<std::string> GetXattr(Node& node, const std::string& name);
  absl::StatusOr<std::vector<std::string>> ListXattr(Node& node);  // without salius' own
  // flags: 0, XATTR_CREATE, XATTR_REPLACE. `kill_sgid`: FUSE_SETXATTR_ACL_KILL_SGID.
  absl::Status SetXattr(Node& node, const std::string& name, std::string_view value, int flags,
                        bool kill_sgid);
  absl::Status RemoveXattr(Node& node, const std::string& name);

  // ---- open files. `flags` are open(2)'s; O_SYNC/O_DSYNC make every write of the handle wait.
  // `opener`: the user whose descriptor it is. ManyOpen(): so many are open that a user's share counts; root will do
  // before.
  bool ManyOpen() const;
  absl::StatusOr<Handle*> OpenFile(Node& node, int flags, uid_t opener = 0);
  struct Created {
    Entry entry;
    Handle* handle = nullptr;
  };
  absl::StatusOr<Created> CreateFile(Node& dir, std::string_view name, int flags, mode_t mode,
                                     const Caller&);
  absl::StatusOr<Created> CreateTmpFile(Node& dir, int flags, mode_t mode,
                                        const Caller&);  // O_TMPFILE
  // True when every handle of the node now open is synchronous or O_DIRECT, so that a front may let
  // this open bypass its cache (decided per inode and never mixed).
  bool DirectAllowed(Node& node) const;
  void Release(Handle* handle);

  // Reads up to `size` bytes into `out` (resized to what was read; short only at end of file).
  absl::Status Read(Handle& handle, uint64_t offset, size_t size, std::string* out);
  // `append`: at the end of file, whatever `offset` says (RWF_APPEND or O_APPEND); the offset used
  // is logged. `sync`: return when durable (handle's flags count as well). `data` is copied.
  absl::StatusOr<size_t> Write(Handle& handle, uint64_t offset, std::string_view data, bool append,
                               bool sync);
  absl::Status Fsync(Handle& handle, bool data_only);
  // Write and Fsync without their waits: `durable_at` is the seq that must be durable before the
  // caller is answered (WhenDurable); 0: nothing is left to wait for.
  struct Started {
    size_t bytes = 0;  // written
    Seq durable_at = 0;
  };
  absl::StatusOr<Started> StartWrite(Handle& handle, uint64_t offset, std::string_view data,
                                     bool append, bool sync);
  absl::StatusOr<Started> StartFsync(Handle& handle);
  // As the stream's: the outcome is an EIO error when the volume fails first.
  void WhenDurable(Seq seq, DurableCallback done);
  absl::Status FsyncDir(Handle& handle);  // as StartFsync and WhenDurable
  absl::Status Fallocate(Handle& handle, int mode, uint64_t offset, uint64_t length);
  absl::StatusOr<uint64_t> Lseek(Handle& handle, uint64_t offset,
                                 int whence);  // SEEK_DATA, SEEK_HOLE
  absl::StatusOr<size_t> CopyFileRange(Handle& in, uint64_t in_offset, Handle& out,
                                       uint64_t out_offset, size_t length);

  // ---- directories
  absl::StatusOr<Handle*> OpenDir(Node& node, uid_t opener = 0);
  // Appends entries from `offset` on until `emit` returns false. `.salius` is left out of the root.
  absl::Status ReadDir(Handle& handle, uint64_t offset,
                       const std::function<bool(const DirEntry&)>& emit);

  absl::StatusOr<struct statvfs> StatFs();
  // ioctl FS_IOC_GETFLAGS and the like are not offered: ENOTTY at the front.

  RecordStream& stream();
  // OK while changes are accepted: the stream's health and the volume's own (a bulk file that
  // could not be synced makes it read-only, too). The error is what data calls return.
  absl::Status health() const;
  // Drains and notes clean (RecordStream::Stop). Open handles must be gone.
  absl::Status Close();

  struct Impl;

 private:
  explicit Volume(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace salius
