// From the decided records to what the disk must look like (docs/recovery.md): it converges, it
// does not step.
//
// - Of one file: its data and attribute records in order, less the data records at or below an "on
// disk
//   up to" mark (I3) and less what was cancelled.
// - Of names: only the final binding of every touched (directory id, name): a file id or nothing.
// How
//   the history got there does not matter, so it does not matter either how far the disk was ahead.
// - Every id that a record mentions gets hints where to look for it, and a fate: whether T leaves
// it
//   bound, which decides what it means when the disk does not have it.
//
// - Of extended attributes, too, only what they are at T.
//
// Why any disk state between the checkpoint and T converges: a byte that some record covers ends as
// the last such record says, whatever it was; a byte that none covers was changed by nobody. The
// same for attributes, and for names by construction.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "log/record.h"
#include "recovery/record_set.h"

namespace salius::recovery {

// What T says about an object, as far as the records tell.
enum class Fate {
  kBound,  // a touched name binds it, or it was there before and no name of it was removed:
           // if the disk does not have it and no create record is in the log, that is DATA_LOSS
  kMaybeUnbound,  // was there before, lost a name, and may or may not have others (hard links)
  kUnbound,       // certainly gone at T: nothing of it is replayed
};

struct DirName {
  FileId dir = kNoFileId;
  std::string name;
  auto operator<=>(const DirName&) const = default;
};

// The target of one touched name at T.
struct Binding {
  FileId target = kNoFileId;  // kNoFileId: the name does not exist
  Seq seq = 0;                // the last record that touched it
  // A record removed from this name something whose id it does not give: an object that no record
  // knows, found there, goes. Otherwise such an object came from outside and is kept in
  // .salius/lost/.
  bool remove_unknown = false;
};

// An extended attribute that a record sets or removes, as it is at T.
struct XattrAtT {
  Seq seq = 0;                       // the last record of it
  std::optional<std::string> value;  // nothing: there is none
};

// All that is known about one id.
struct ObjectPlan {
  FileId id = kNoFileId;
  Fate fate = Fate::kBound;
  bool directory = false;                  // it is known to be one
  std::optional<CreateBody> create;        // its create record is in the log
  std::vector<AdoptBody> adopts;           // newest first
  std::vector<DirName> names;              // every name the records give it, newest first
  std::vector<const RecordView*> ops;      // to run, in seq order
  std::map<std::string, XattrAtT> xattrs;  // what `ops`, and the create record, make of them
  bool on_disk = false;                    // an "on disk up to" record mentions it
  // Up to there its data, times and file capabilities are on the disk, or newer ones that went past
  // the log.
  Seq on_disk_upto = 0;
  uint64_t skipped = 0;     // data records covered by that
  uint64_t data_bytes = 0;  // bodies of the writes in `ops`
  // Time to set after `ops`: the last data record's, or the create record's of what is no
  // directory, unless a later attribute record set it. 0: leave.
  uint64_t mtime_ns = 0;
  Seq create_seq = 0;
  // The last of its records that a session issues one at a time: data, attributes, its links and
  // their removal.
  Seq last_seq = 0;
  // T cannot be reached without the object: it has operations to run, a touched name binds it, or
  // it is a directory with touched names; and it is not kUnbound.
  bool needed = false;
};

struct ReplayPlan {
  std::map<FileId, ObjectPlan> objects;  // every id mentioned but the root's, unless it has ops
  std::map<DirName, Binding> bindings;   // every touched name
  // Records of names behind which none of the same directories follows.
  absl::flat_hash_set<Seq> last_names;
  // Those of the records that are left out: another run begins with all of them.
  absl::flat_hash_set<FileId> left_out;
  uint64_t cancelled = 0;
  uint64_t data_bytes = 0;
  FileId max_file_id = 0;
  uint64_t last_timestamp_ns = 0;

  // Whether nobody can have been told yet that the object was made (recovery/refusal.h).
  bool MayLeaveOutCreate(const ObjectPlan& object) const;
};

// `records` are ascending by seq, of one epoch, as Merge gives them, and outlive the plan; those in
// `left_out` count as cancelled, and what they may have moved has its place again. Errors:
// DATA_LOSS when a body does not decode (its checksum was right, so its writer was wrong), or a
// cancel record names a seq that is not before it.
absl::StatusOr<ReplayPlan> PlanReplay(absl::Span<const RecordView* const> records,
                                      const absl::flat_hash_set<Seq>& left_out = {});

// Paths of objects from the volume's root, without a slash in front.
using ObjectPaths = std::map<FileId, std::string>;

// One line per object and name, for --dry-run; by id where `paths` has none.
std::vector<std::string> DescribePlan(const ReplayPlan& plan, const ObjectPaths& paths = {});

}  // namespace salius::recovery
