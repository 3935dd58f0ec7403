// Applies durable records to the backing files, and syncs for checkpoints. LaneSink decides which
// records are applied when.
//
// A failed write or truncation means that acknowledged data cannot reach the disk. Its error is
// returned: the volume turns read-only (I8). So is that of any other record whose caller does not
// wait for the result; a caller that waits gets the error and cancels the record.
//
// Threads: any. Names are applied by one call at a time. Calls at the same time must not depend on
// each other (Lanes).
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/session/record_stream.h"
#include "client/volume/backing_dirs.h"
#include "client/volume/bulk_files.h"
#include "client/volume/extents.h"
#include "client/volume/health.h"
#include "client/volume/hidden_links.h"
#include "client/volume/node.h"
#include "client/volume/node_fds.h"
#include "client/volume/patch_memory.h"
#include "client/volume/pending_names.h"
#include "client/volume/predictions.h"
#include "log/record.h"
#include "storage/backing.h"
#include "storage/space.h"

namespace salius {

class BackingApplier {
 public:
  BackingApplier(Backing& backing, NodeTable& table, Predictions& predictions, NodeFds& fds,
                 SpaceGuard& space, Health& health, const BackingDirs& dirs, BulkFiles& bulk,
                 HiddenLinks& links, PendingNames& pending, PatchMemory& memory)
      : backing_(backing),
        table_(table),
        predictions_(predictions),
        fds_(fds),
        space_(space),
        health_(health),
        dirs_(dirs),
        bulk_(bulk),
        links_(links),
        pending_(pending),
        memory_(memory) {}

  // Returns how many of the first records Apply would apply together: writes of one file, each of
  // which begins where the one before ends. Any other record is applied alone.
  static size_t Together(absl::Span<const RecordRef> records);
  // Applies the first of `records`, or as many of the first as can be applied together. Returns how
  // many. As ApplySink::Apply.
  absl::StatusOr<size_t> Apply(absl::Span<const RecordRef> records);
  // Applies writes of one file, in the order of their seqs: `extents` is what is left of them.
  absl::Status ApplyMerged(absl::Span<const RecordRef> writes, const Extents& extents);
  // Notes that writes of a file are applied, because `by`, which is applied next, is a truncation that
  // cuts them off, or the removal of a file that cannot be read any more.
  absl::Status NoteCutOff(absl::Span<const RecordRef> writes, const RecordHeader& by);
  // As those of ApplySink.
  absl::Status SyncApplied();
  void Checkpointed();

 private:
  absl::Status ApplyToFile(Node& node, const RecordRef& record);
  absl::Status ApplyOneData(Node& node, const RecordRef& record);
  // Applies writes that follow one another in the file, with one call.
  absl::Status ApplyWrites(Node& node, absl::Span<const RecordRef> records);
  absl::Status ApplyName(const RecordRef& record);
  absl::Status ApplyLinkOrUnlink(const RecordHeader& header, std::string_view body);
  absl::Status ApplyCreate(const RecordHeader& header, std::string_view body);
  // Sets `result` to that of renameat2(2). Returns an error when the whiteout could not be given its
  // owner and id: the record is not applied then.
  absl::Status ApplyRename(std::string_view body, absl::Status* result);
  // Notes that data records up to `last` are about to change the backing file: for readers.
  static void NoteApplying(Node& node, Seq last);
  // Notes that `records`, all of the node and in the order of their seqs, were applied.
  absl::Status Finish(Node& node, absl::Span<const RecordRef> records);

  Backing& backing_;
  NodeTable& table_;
  Predictions& predictions_;
  NodeFds& fds_;
  SpaceGuard& space_;
  Health& health_;
  const BackingDirs& dirs_;
  BulkFiles& bulk_;
  HiddenLinks& links_;
  PendingNames& pending_;
  PatchMemory& memory_;
};

}  // namespace salius
