// The data of open files: reads over which extents are laid, writes, fsync, space, copies.
//
// A write's way: StartWrite checks that there is room, and issues records under the node's
// `stream`; or the data of a bulk file goes to the backing file at once (bulk_files.h). The ticket
// says what must be durable before the caller is answered.
//
// Errors: absl::Status with the exact errno in its payload. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/session/record_stream.h"
#include "client/volume/bulk_files.h"
#include "client/volume/contract.h"
#include "client/volume/health.h"
#include "client/volume/issuer.h"
#include "client/volume/lane_sink.h"
#include "client/volume/node.h"
#include "client/volume/node_fds.h"
#include "client/volume/patch_memory.h"
#include "client/volume/stream_slot.h"
#include "client/volume/sync_rule.h"
#include "client/volume/write_room.h"
#include "storage/backing.h"

namespace salius {

class FileOps {
 public:
  FileOps(Backing& backing, const StreamSlot& stream, Issuer& issuer, BulkFiles& bulk,
          WriteRoom& room, NodeFds& fds, const Health& health, const SyncRule& rule,
          PatchMemory& memory, LaneSink& lanes)
      : backing_(backing),
        stream_(stream),
        issuer_(issuer),
        bulk_(bulk),
        room_(room),
        fds_(fds),
        health_(health),
        rule_(rule),
        memory_(memory),
        lanes_(lanes) {}
  FileOps(const FileOps&) = delete;
  FileOps& operator=(const FileOps&) = delete;

  // Reads up to `size` bytes into `out` (resized to what was read; short only at end of file).
  absl::Status Read(Handle& handle, uint64_t offset, size_t size, std::string* out);
  // Writes `data`, which is copied. `append`: at the end of file, whatever `offset` says
  // (RWF_APPEND or O_APPEND); the offset used is logged. The handle's flags may promise more than
  // `contract`, and the mount less (SyncRule).
  absl::StatusOr<Ticket> StartWrite(Handle& handle, uint64_t offset, std::string_view data,
                                    bool append, Contract contract);
  // Syncs a file or a directory. The ticket is settled where an fsync only orders (SyncRule).
  absl::StatusOr<Ticket> StartFsync(Handle& handle);
  // Syncs it under every contract: the ticket says when its data, attributes and names are durable.
  // Data that went past the log is synced to the disk now.
  absl::StatusOr<Ticket> StartDsync(Handle& handle);
  // Orders: a change of the volume that is issued after this call is recovered only together with
  // all that were issued before it. Waits only where data went past the log, which is synced.
  absl::Status Osync();
  // Returns the last record of the node's own data and attributes; 0: none.
  static Seq LastChange(Node& node) ABSL_LOCKS_EXCLUDED(node.state);
  // Returns when the caller with `ticket` may be answered; EIO when the volume fails first.
  absl::Status Await(const Ticket& ticket);
  // Calls `done` with the outcome of Await, like RecordStream::WhenDurable. The ticket must not be
  // settled.
  void WhenDurable(const Ticket& ticket, DurableCallback done);
  // Does so like RecordStream::NotifyDurable.
  void NotifyDurable(const Ticket& ticket, DurableCallback done);
  // Writes like StartWrite, and waits. Returns the number of bytes.
  absl::StatusOr<size_t> Write(Handle& handle, uint64_t offset, std::string_view data, bool append,
                               Contract contract);

  // Sets the size of a regular file. It is issued like a write, and not waited for.
  absl::Status Truncate(Node& node, uint64_t size);
  absl::Status Fallocate(Handle& handle, int mode, uint64_t offset, uint64_t length);
  // Returns the next place of data or a hole from `offset` on. `whence`: SEEK_DATA, SEEK_HOLE.
  absl::StatusOr<uint64_t> Lseek(Handle& handle, uint64_t offset, int whence);
  absl::StatusOr<size_t> CopyFileRange(Handle& in, uint64_t in_offset, Handle& out,
                                       uint64_t out_offset, size_t length);

 private:
  // Returns whether a plain write changes a part of a page of the file. It may have to wait for the
  // page if it goes past the log, so it never makes the file bulk.
  absl::StatusOr<bool> IsShortOverwrite(Node& node, uint64_t offset, uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);
  // Reads once. Returns false when a record that it did not know began to be applied meanwhile.
  absl::StatusOr<bool> ReadOnce(Handle& handle, uint64_t offset, size_t size, std::string* out);
  // Issues the records of one write. Returns the last record's seq.
  absl::StatusOr<Seq> IssueWrite(Node& node, uint64_t offset, std::string_view data, SendWhen when)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(node.stream);

  Backing& backing_;
  const StreamSlot& stream_;
  Issuer& issuer_;
  BulkFiles& bulk_;
  WriteRoom& room_;
  NodeFds& fds_;
  const Health& health_;
  const SyncRule& rule_;
  PatchMemory& memory_;
  LaneSink& lanes_;
};

}  // namespace salius
