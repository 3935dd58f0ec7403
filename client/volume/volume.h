// A volume in use: files, directories and their patches on top of a record stream. The fronts (FUSE
// now; the preload library and the C API later) are thin: they translate requests to these calls
// and results back.
//
// Model
// - A Node is one file or directory that the front knows (an inode in use). It holds an O_PATH
//   descriptor of the backing object, its file id (0 until its first change), and its patches.
// - A patch is an issued data record (write, truncate, fallocate) that is not applied yet. Reads
//   and attributes see patches: content = backing file, then the patches in seq order. The node
//   keeps the size while patches are pending.
// - Every change is a record. Data and attribute records are issued under the node's lock, so seq
//   order is the order of the file's stream.
// - A name operation (create, link, unlink, rename) holds the locks of its directories from check
//   to apply (docs/mount-internals.md). It checks that it can succeed, issues its record, waits
//   until that is durable and applied, and returns the result. If applying fails it issues a cancel
//   record, waits until that is durable, and returns the error.
// - Bulk: past `bulk_limit_bytes` of plain writes since its last sync a file is bulk. Its writes go
//   to the backing file at once (after its patches are applied) and are not logged. Its next Fsync
//   applies the file's records <= s, syncs the backing file, issues kOnDisk(file, s), and waits
//   until that is durable. Then the file is no longer bulk (I3).
// - Space: a write that extends a file or fills holes is refused before it is stamped. ENOSPC: it
//   does not fit into the free blocks less a reserve and less the need of unapplied records.
//   EDQUOT: the owner's quota (quotactl). EFBIG: the file system's maximum; RLIMIT_FSIZE is the
//   kernel's.
//
// Errors: absl::Status with the exact errno in its payload (common/file.h, StatusErrno).
// Threads: every method may be called from any thread. Lock order: client/volume/node.h. Two kinds
// of locks are held over waits: a name operation's directory locks, and one file's lock while its
// caller waits for an attribute, the end of bulk, or space on a nearly full disk.
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
#include "client/volume/contract.h"
#include "common/ids.h"
#include "storage/volume_config.h"

namespace salius {

// The caller of an operation: owner and group of new objects. Permission checks are the front's
// (the kernel's default_permissions on a mount).
struct Caller {
  uid_t uid = 0;
  gid_t gid = 0;
  mode_t umask = 0;  // applied by the volume unless the directory has a default ACL
  std::vector<gid_t>
      groups;  // supplementary; only for keeping S_ISGID on a file in a setgid directory
  bool sgid_checked = false;  // it may keep S_ISGID there: the kernel has checked its groups
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
  // Reading a file, or a directory, does not change its access time.
  bool noatime = false;
  bool nodiratime = false;
};

class Volume {
 public:
  // Opens a clean volume and starts a session. The caller has recovered the volume if that was
  // needed (client/mount/mount_daemon.cc calls recovery/). `dir` holds the lock. `start` starts the
  // session's record stream.
  static absl::StatusOr<std::unique_ptr<Volume>> Open(VolumeDir dir, VolumeOptions options,
                                                      StartRecordStream start);
  // Ends the volume. Without Close() that is like a crash of the process.
  ~Volume();

  Node* root();
  // Changes the options of the same names, also for open files and directories. Any thread.
  void SetNoAtime(bool noatime, bool nodiratime);
  // Returns RecordStream::ManyWait().
  bool ManyWait() const;
  // Returns the backing inode number.
  static ino_t InoOf(const Node& node);
  // Returns a number that no other node of the session has; the root's is 0.
  static uint64_t Generation(const Node& node);
  // Returns the front's word of a node: 0 at first, kept as long as the node lives, never used by
  // the volume. (The FUSE front counts opens there and keeps how the inode is cached.)
  static std::atomic<uint64_t>& FrontWord(Node& node);

  // ---- names. `.salius` in the root does not exist for callers: ENOENT, and EPERM to make it.
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
  // Renames. `flags`: those of renameat2(2). With RENAME_WHITEOUT the caller owns the whiteout at
  // `from`.
  absl::Status Rename(Node& from_dir, std::string_view from, Node& to_dir, std::string_view to,
                      uint32_t flags, const Caller& = Caller());
  absl::StatusOr<std::string> ReadLink(Node& node);

  // ---- attributes
  // Returns the attributes. Waits a moment until the file's records are applied, so that the times
  // are the file's own. When the disk is slower it returns size and times as far as known and sets
  // `*provisional`: they may change when the records are applied.
  absl::StatusOr<struct stat> GetAttr(Node& node, bool* provisional = nullptr);
  // Returns when the backing file was made; nothing where its file system does not keep that. (A
  // file that recovery rebuilt is new.)
  absl::StatusOr<std::optional<timespec>> BirthTime(Node& node);
  // Changes attributes. A new size is issued like a write, and not waited for; other changes are
  // waited for until they are applied.
  absl::StatusOr<struct stat> SetAttr(Node& node, uint32_t mask, const struct stat& want,
                                      bool* provisional = nullptr);
  // Returns EDQUOT when the group's quota leaves no room for the file. To be called before an
  // unprivileged caller gives the file to the group.
  absl::Status CheckNewGroup(Node& node, gid_t gid);
  absl::StatusOr<std::string> GetXattr(Node& node, const std::string& name);
  absl::StatusOr<std::vector<std::string>> ListXattr(Node& node);  // without salius' own
  // Sets an extended attribute. `flags`: 0, XATTR_CREATE, XATTR_REPLACE. `kill_sgid`:
  // FUSE_SETXATTR_ACL_KILL_SGID.
  absl::Status SetXattr(Node& node, const std::string& name, std::string_view value, int flags,
                        bool kill_sgid);
  absl::Status RemoveXattr(Node& node, const std::string& name);

  // ---- open files. `flags` are open(2)'s; O_SYNC/O_DSYNC make every write of the handle wait.
  // `opener`: the user whose descriptor it is. It matters only when ManyOpen(): then open files are
  // so numerous that each user has a share.
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
  // Returns whether every open handle of the node is synchronous or O_DIRECT, so that a front may
  // let this open bypass its cache (decided per inode and never mixed).
  bool DirectAllowed(Node& node) const;
  void Release(Handle* handle);

  // Reads up to `size` bytes into `out` (resized to what was read; short only at end of file).
  absl::Status Read(Handle& handle, uint64_t offset, size_t size, std::string* out);
  // Writes, and returns the number of bytes. `append`: at the end of file, whatever `offset` says
  // (RWF_APPEND or O_APPEND); the offset used is logged. The handle's flags may promise more than
  // `contract`. `data` is copied. Returns when the promise is kept.
  absl::StatusOr<size_t> Write(Handle& handle, uint64_t offset, std::string_view data, bool append,
                               Contract contract);
  // Writes like Write, or syncs a file or directory, without the wait.
  absl::StatusOr<Ticket> StartWrite(Handle& handle, uint64_t offset, std::string_view data,
                                    bool append, Contract contract);
  absl::StatusOr<Ticket> StartFsync(Handle& handle);
  // Returns when the caller with `ticket` may be answered; EIO when the volume fails first.
  absl::Status Await(const Ticket& ticket);
  // Calls `done` with the outcome of Await, like RecordStream::WhenDurable. The ticket must not be
  // settled.
  void WhenDurable(const Ticket& ticket, DurableCallback done);
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
  // There are no ioctls such as FS_IOC_GETFLAGS: the front answers ENOTTY.

  RecordStream& stream();
  // Returns OK while changes are accepted: the stream's health and the volume's own (a bulk file
  // that could not be synced also makes it read-only). Data calls return the same error.
  absl::Status health() const;
  // Drains and notes clean (RecordStream::Stop). Open handles must be gone.
  absl::Status Close();

  struct Impl;

 private:
  explicit Volume(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace salius
