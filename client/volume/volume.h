// A volume in use: files, directories and their unapplied changes on top of a record stream. The
// fronts (FUSE now; the preload library and the C API later) are thin: they translate requests to
// these calls and results back.
//
// Model
// - A Node is one file or directory that the front knows (an inode in use). It holds an O_PATH
//   descriptor of the backing object, its file id (0 until its first change), and its extents.
// - Extents are what issued data records (write, truncate, fallocate) change and is not applied
//   yet. Reads and attributes see them: content = backing file, then the extents over it. The node
//   keeps the size while there are any.
// - Every change is a record. Data and attribute records are issued under the node's lock, so seq
//   order is the order of the file's stream.
// - A name operation (create, link, unlink, rename) holds the locks of its directories from check
//   to apply (docs/mount-internals.md). It checks that it can succeed, makes a new object without a
//   name, issues its record, waits until that is durable and applied, and returns the result. If
//   applying fails it issues a cancel record, waits until that is durable, and returns the error.
//   With names_early it returns when its record is issued.
// - Bulk: past `bulk_limit_bytes` of plain writes since its last sync a file is bulk. Its writes go
//   to the backing file at once (after its records are applied) and are not logged. Its next Fsync
//   applies the file's records <= s, syncs the backing file, issues kOnDisk(file, s), and waits
//   until that is durable. Then the file is no longer bulk (I3).
// - Space: a write that extends a file or fills holes is refused before it is stamped. ENOSPC: it
//   does not fit into the free blocks less a reserve and less the need of unapplied records.
//   EDQUOT: the owner's quota (quotactl). EFBIG: the file system's maximum; RLIMIT_FSIZE is the
//   kernel's.
//
// Classes. Each has its own fields; a line uses the ones above it.
//
//   StreamSlot, BackingDirs, Health, NodeTable, NodeFds    what all of them share
//   Predictions  attributes that are not applied yet
//   Issuer       ids, records, results, waits
//   BulkFiles     writes that go past the log, and their sync (I3)
//   HiddenLinks   files without a name
//   PendingNames  names that are not applied yet
//   BackingApplier       applies records, syncs for checkpoints
//   LaneSink      the stream's sink: when which record is applied; a FetchPolicy and LaneWorkers
//   WriteRoom     EFBIG, ENOSPC, EDQUOT before a record is stamped
//   FileOps       data of open files          volume.files()
//   OpenFiles     open, close                 volume.open_files()
//   AttrOps       attributes                  volume.attrs()
//   NameChecks    refuses what applying would refuse
//   NameWaits     which operations on names wait    volume.name_waits()
//   NameOps       names and directories       volume.names()
//
// Errors: absl::Status with the exact errno in its payload (common/file.h, StatusErrno).
// Threads: every method may be called from any thread. Lock order: client/volume/node.h. Two kinds
// of locks are held over waits: a name operation's directory locks, and one file's lock while its
// caller waits for an attribute, the end of bulk, or space on a nearly full disk.
#pragma once

#include <sys/statvfs.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/gate/page.h"
#include "client/session/record_stream.h"
#include "client/volume/attr_ops.h"
#include "client/volume/backing_applier.h"
#include "client/volume/backing_dirs.h"
#include "client/volume/bulk_files.h"
#include "client/volume/contract.h"
#include "client/volume/fetch_policy.h"
#include "client/volume/file_ops.h"
#include "client/volume/health.h"
#include "client/volume/hidden_links.h"
#include "client/volume/issuer.h"
#include "client/volume/lane_sink.h"
#include "client/volume/name_checks.h"
#include "client/volume/name_ops.h"
#include "client/volume/name_waits.h"
#include "client/volume/node.h"
#include "client/volume/node_fds.h"
#include "client/volume/open_files.h"
#include "client/volume/patch_memory.h"
#include "client/volume/pending_names.h"
#include "client/volume/predictions.h"
#include "client/volume/stream_slot.h"
#include "client/volume/sync_rule.h"
#include "client/volume/lane_workers.h"
#include "client/volume/write_room.h"
#include "common/ids.h"
#include "storage/backing.h"
#include "storage/file_fds.h"
#include "storage/space.h"
#include "storage/volume_config.h"

namespace salius {

class Credentials;  // transport/credentials.h

struct VolumeOptions {
  VolumeConfig config;    // after mount options were applied
  gate::Page* gate_page = nullptr;  // StreamOptions
  bool output_triggered = false;    // StreamOptions
  int64_t spin_ns = 0;    // StreamOptions
  bool insecure = false;  // StreamOptions
  std::shared_ptr<Credentials> keys = nullptr;  // StreamOptions
  int64_t key_rotation_ns = 0;                  // StreamOptions
  // Reading a file, or a directory, does not change its access time.
  bool noatime = false;
  bool nodiratime = false;
  // Name operations return before they are durable (names=async).
  bool names_early = false;
  // They wait all the same (dirsync).
  bool dirsync = false;
  PendingNames::Bounds pending_names;
  // The way in which the missing page of a write is fetched (fetch=), and the bytes of unapplied
  // data at which writers wait (patch_memory=).
  FetchMode fetch = kDefaultFetch;
  uint64_t patch_memory_bytes = kDefaultPatchMemoryBytes;
  // Apply what waits for a page; null: threads of the volume's own. They outlive it.
  LaneWorkers* workers = nullptr;
  // Decides whether synchronous calls wait. A relaxed one needs `names_early`, and has no bulk
  // files.
  MountContract contract;
};

class Volume {
 public:
  // Opens a clean volume and starts a session. The caller has recovered the volume if that was
  // needed (client/mount/mount_daemon.cc calls recovery/). `dir` holds the lock. `start` starts the
  // session's record stream.
  static absl::StatusOr<std::unique_ptr<Volume>> Open(VolumeDir dir, VolumeOptions options,
                                                      StartRecordStream start);
  // Opens a volume in `dirs`, whatever keeps its state and log: what Open does once these are open.
  // No file has an id at or above `id_ceiling`. `descriptors`: how many this process may have.
  // `start` starts the record stream, which may call the sink at once.
  using StartStream = absl::FunctionRef<absl::StatusOr<std::unique_ptr<RecordStream>>(ApplySink&)>;
  static absl::StatusOr<std::unique_ptr<Volume>> OpenIn(BackingDirs dirs, FileId id_ceiling,
                                                        uint64_t descriptors,
                                                        const VolumeOptions& options,
                                                        StartStream start);
  // Ends the volume. Without Close() that is like a crash of the process.
  ~Volume();
  Volume(const Volume&) = delete;
  Volume& operator=(const Volume&) = delete;

  // The operations. There are no ioctls such as FS_IOC_GETFLAGS: the front answers ENOTTY.
  NameOps& names() { return names_; }
  AttrOps& attrs() { return attrs_; }
  OpenFiles& open_files() { return open_files_; }
  FileOps& files() { return files_; }
  NameWaits& name_waits() { return waits_; }
  PendingNames& pending_names() { return pending_; }
  LaneSink& lanes() { return sink_; }
  const PatchMemory& patch_memory() const { return memory_; }

  Node& root() { return table_.root(); }
  absl::StatusOr<struct statvfs> StatFs();

  RecordStream& stream() { return *stream_; }
  // Returns OK while changes are accepted: the stream's health and the volume's own (a bulk file
  // that could not be synced also makes it read-only). Data calls return the same error.
  absl::Status health() const { return health_.Data(); }
  // Drains and notes clean (RecordStream::Stop). Open handles must be gone.
  absl::Status Close();

 private:
  Volume(BackingDirs dirs, const VolumeOptions& options, bool names_early, FileId id_ceiling);

  // Makes the root's node and shares out `descriptors`, which this process may have.
  absl::Status Prepare(uint64_t descriptors, const VolumeOptions& options);
  // Makes room on a nearly full disk (SpaceGuard::set_reclaim).
  absl::Status Reclaim();

  std::unique_ptr<VolumeDir> dir_;  // of Open; the last to go
  BackingDirs dirs_;
  Backing& backing_;
  StreamSlot stream_;
  Health health_;
  FileFds file_fds_;
  NodeTable table_;
  NodeFds fds_;
  SpaceGuard space_;
  const SyncRule rule_;
  PatchMemory memory_;
  Predictions predictions_;
  Issuer issuer_;
  BulkFiles bulk_;
  HiddenLinks links_;
  PendingNames pending_;
  BackingApplier applier_;
  const std::unique_ptr<FetchPolicy> fetch_;
  const std::unique_ptr<LaneWorkers> own_workers_;
  LaneWorkers& workers_;
  LaneSink sink_;
  WriteRoom room_;
  FileOps files_;
  OpenFiles open_files_;
  AttrOps attrs_;
  NameChecks checks_;
  NameWaits waits_;
  NameOps names_;
};

}  // namespace salius
