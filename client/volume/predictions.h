// The predicted attributes of a volume's nodes (Prediction), where names and attributes do not wait
// (names=async): when one begins, which records enter it, and how it ends.
//
// - A prediction begins with the attributes of the disk and the data records that are not applied:
//   when a record of a name or an attribute is issued, or when a caller asks for the attributes of
//   a file with unapplied data. It lasts until no record of the node is unapplied.
// - A record whose caller does not wait enters it when it is issued. A record that may be refused when
//   it is applied enters it when it has succeeded.
// - At the end the disk gets the mtime that the prediction has, because an apply gives a later one
//   and the order of two files' times must not change. A file without a prediction gets the time
//   of its last data record for the same reason (docs/mount-internals.md).
// - No call sets a ctime. The predicted one is kept as long as the node lives (KeptCtime). The disk's,
//   which callers see after that, is made a later one where the kernel can: it must not go back.
//
// There is none for a file whose attributes change without records: one that is bulk, or loses its
// hidden link (O_TMPFILE). Such a file's callers wait until its records are applied. A prediction
// counts the hidden link as the disk does.
//
// Threads: any. Guarded by the node's `state`, which is not held over a system call.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/volume/node.h"
#include "client/volume/prediction.h"
#include "common/ids.h"
#include "log/record.h"
#include "storage/backing.h"

namespace salius {

// Return the time of a record, which its file gets.
timespec RecordTime(uint64_t timestamp_ns);
inline timespec RecordTime(const RecordHeader& header) { return RecordTime(header.timestamp_ns); }

class Predictions {
 public:
  // Enters one record.
  using Enter = absl::FunctionRef<void(Prediction& prediction, Seq seq, const timespec& now)>;

  // `on`: whether attributes are predicted at all.
  Predictions(Backing& backing, bool on) : backing_(backing), on_(on) {}
  Predictions(const Predictions&) = delete;
  Predictions& operator=(const Predictions&) = delete;

  bool on() const { return on_; }

  // ---- callers
  // Returns the attributes of a node with unapplied records. Nothing: the disk is to be asked, and
  // where records are unapplied they are to be awaited before. Sets `unsure`, unless it is null, to
  // whether st_blocks may change when the records are applied.
  absl::StatusOr<std::optional<struct stat>> Attributes(Node& node, bool* unsure = nullptr);
  // Returns whether the node's attributes can be predicted, under its `state`.
  static bool CanBegin(const Node& node) ABSL_SHARED_LOCKS_REQUIRED(node.state) {
    return !node.dropping_link && !node.orphan && !node.seen_records().direct;
  }
  // Changes attributes that were read from the disk to those that callers see. Returns false when
  // they must be read again: a record was applied since `applies` (AppliesOf).
  static bool Merge(Node& node, uint64_t applies, struct stat& attributes);
  static uint64_t AppliesOf(Node& node);
  // Returns the pending state of an extended attribute; nothing: the disk is right.
  absl::StatusOr<std::optional<Prediction::Xattr>> FindXattr(Node& node, const std::string& name);
  // Returns the names of a node's extended attributes.
  absl::StatusOr<std::vector<std::string>> XattrNames(Node& node);

  // ---- records
  // Makes the prediction of a node if it has none. The caller has counted a record on the node
  // (`unapplied`, `unapplied_names` or `entering`), so that it stays.
  absl::Status Begin(Node& node);
  // Enters a record of the node's own stream that was applied, after it was waited for.
  absl::Status EnterApplied(Node& node, const RecordHeader& header, std::string_view body);

  // ---- the end
  // To be called after records of the node up to `seq` were applied and their counts taken. Ends
  // the prediction when none is left. An error is the disk's.
  absl::Status Settle(Node& node, Seq seq);
  // Gives a file without a prediction the time of its last data record, if no data record is left but
  // `records` ones that were just applied to `fd`, of which `last` is the last. To be called before
  // their counts are taken.
  absl::Status SetDataTime(Node& node, int fd, const RecordHeader& last, uint64_t records);

 private:
  // Gives the file `mtime` where `gives_mtime` says so. Returns the ctime to be kept for callers,
  // who saw `ctime`. Where the disk's is before that, it gives the mtime too, for the disk to get a
  // later ctime, and sets `gives_mtime`.
  absl::StatusOr<KeptCtime> SetTimes(Node& node, const timespec& mtime,
                                     std::optional<timespec> ctime, bool& gives_mtime);
  // Gives a file an mtime. A directory that takes names but no times (`chattr +a`) keeps the disk's.
  absl::Status GiveMtime(int fd, const timespec& mtime);

  Backing& backing_;
  const bool on_;
};

}  // namespace salius
