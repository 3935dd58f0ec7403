// Makes from the decided records a plan of the disk's final state (docs/recovery.md): it converges,
// it does not step.
//
// - For one file: its data and attribute records in order, without cancelled ones, and without the
//   data records at or below an "on disk up to" mark (I3).
// - For names: only the final binding of every touched (directory id, name): a file id or nothing.
//   The history does not matter, so it does not matter either how far the disk was ahead.
// - For every id that a record mentions: hints where to look for it, and a fate. The fate tells
//   whether T leaves it bound, which decides the meaning of its absence from the disk.
// - For extended attributes: only their values at T.
//
// Any disk state between the checkpoint and T converges. A byte that some record covers ends as the
// last such record says, whatever it was; a byte that none covers never changed. The same holds for
// attributes, and for names by construction.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <time.h>

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
#include "recovery/agree/record_set.h"

namespace salius::recovery {

// The state of an object at T, as far as the records tell.
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
  // Whether a record removed from this name an object whose id it does not give. Then an object at
  // this name that no record knows is removed. Otherwise such an object came from outside and is
  // kept in .salius/lost/.
  bool remove_unknown = false;
  // A record left a whiteout here (RENAME_WHITEOUT): one that has no id is that record's, cut off before it gave it one.
  bool whiteout = false;
};

// The value at T of an extended attribute that a record sets or removes.
struct XattrAtT {
  Seq seq = 0;                       // the last record of it
  std::optional<std::string> value;  // nothing: there is none
};

// All facts about one id.
struct ObjectPlan {
  FileId id = kNoFileId;
  Fate fate = Fate::kBound;
  bool directory = false;                  // known to be a directory
  std::optional<CreateBody> create;        // its create record is in the log
  std::vector<AdoptBody> adopts;           // newest first
  std::vector<DirName> names;              // every name the records give it, newest first
  std::vector<const RecordView*> ops;      // to run, in seq order
  std::map<std::string, XattrAtT> xattrs;  // the result of `ops` and the create record
  bool on_disk = false;                    // an "on disk up to" record mentions it
  // Up to this seq its data, times and file capabilities are on the disk, or newer ones that went
  // past the log.
  Seq on_disk_upto = 0;
  uint64_t skipped = 0;     // data records up to on_disk_upto
  uint64_t data_bytes = 0;  // bodies of the writes in `ops`
  // The time to set after `ops`: that of the last data record, or of the create record unless it is
  // a directory. 0 leaves the time, also when a later attribute record set it.
  uint64_t mtime_ns = 0;
  Seq create_seq = 0;
  // The last of those of its records that a session issues one at a time: data, attributes, its
  // links and their removal.
  Seq last_seq = 0;
  // Whether T cannot be reached without the object. It is not kUnbound, and has operations to run,
  // a touched name, or is a directory with touched names.
  bool needed = false;
};

struct ReplayPlan {
  std::map<FileId, ObjectPlan> objects;  // every id mentioned but the root's, unless it has ops
  std::map<DirName, Binding> bindings;   // every touched name
  // The mtime at T of each directory that the records make, or whose names they change (R57).
  std::map<FileId, timespec> directory_times;
  // Records of names that no record of one of the same directories follows.
  absl::flat_hash_set<Seq> last_names;
  // Objects of records that are left out: another run begins with all of them.
  absl::flat_hash_set<FileId> left_out;
  uint64_t cancelled = 0;
  uint64_t data_bytes = 0;
  FileId max_file_id = 0;
  uint64_t last_timestamp_ns = 0;

  // Whether no caller that waited can have received success for the object's creation
  // (recovery/replay/refusal.h).
  bool MayLeaveOutCreate(const ObjectPlan& object) const;
};

// Makes the plan. `records` are ascending by seq, of one epoch, as Merge returns them, and outlive
// the plan. Those in `left_out` count as cancelled, and objects that they may have moved get their
// places back. Errors: DATA_LOSS when a body does not decode (its checksum was right: its writer
// was wrong), or a cancel record names a seq that is not before it.
absl::StatusOr<ReplayPlan> PlanReplay(absl::Span<const RecordView* const> records,
                                      const absl::flat_hash_set<Seq>& left_out = {});

// Paths of objects from the volume's root, without a slash in front.
using ObjectPaths = std::map<FileId, std::string>;

// Returns one line per object and name, for --dry-run; by id where `paths` has none.
std::vector<std::string> DescribePlan(const ReplayPlan& plan, const ObjectPaths& paths = {});

}  // namespace salius::recovery
