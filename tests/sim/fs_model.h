// A model of the backing directory: what records do to it, what a power cut leaves of it, and
// replay of a recovery's plan on it. Small contents, no permissions: the simulator is after lost,
// reordered and revived operations.
//
// Power cuts. Changes of names reach the disk in order, as a journal commits them; data of files
// reaches it in any order, or in part, until a sync.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/random.h"
#include "log/record.h"
#include "recovery/replay_target.h"

namespace salius::sim {

// Names and contents.
struct Tree {
  std::map<FileId, std::string> files;  // content by id
  std::map<recovery::DirName, FileId> names;
  bool operator==(const Tree&) const = default;

  // Does what the record says. What names a file that is not there does nothing.
  void Apply(const RecordHeader& header, std::string_view body);
  // Forgets files without a name.
  void Collect();
};
bool ChangesNames(Op op);

// Where the trees first differ, for people; empty when they do not.
std::string Difference(const Tree& got, const Tree& expected);

// The backing directory of one machine.
class FsModel : public recovery::ReplayTarget {
 public:
  const Tree& tree() const { return now_; }

  // A record is applied by the session. `encoded` is copied.
  void Apply(const RecordHeader& header, std::string_view body);
  // A write past the log (bulk data); an fsync of it is SyncUpTo(changes()).
  void WriteBulk(FileId id, uint64_t offset, std::string_view data);
  // How many changes there were so far; and: all of the first `changes` are on the disk.
  uint64_t changes() const { return done_ + log_.size(); }
  void SyncUpTo(uint64_t changes);

  // The power goes, or only the process dies. `session`: files without a name vanish.
  void Crash(Random& random, bool power, bool session);
  // Replay fails once with INTERNAL after this many changes (a crash in the middle).
  void DieAfter(uint64_t changes) { dies_at_ = changes; }

  absl::Status Check(const recovery::ReplayContext& context,
                     const recovery::ReplayPlan& plan) override;
  absl::Status Replay(const recovery::ReplayContext& context,
                      const recovery::ReplayPlan& plan) override;
  absl::Status Sync(const recovery::ReplayContext& context) override;
  void CleanUp(const recovery::ReplayContext& context, const VolumeConfig& config) override;

 private:
  struct Change {
    RecordHeader header;
    std::string body;
    // Not a record: a name is set (0: removed), or an empty file appears.
    bool set_name = false, make = false;
    recovery::DirName name;
    FileId id = kNoFileId;
    bool names() const { return set_name || make || ChangesNames(header.op); }
    void Do(Tree& tree) const;
    bool DoPart(Tree& tree, Random& random) const;
  };
  absl::Status Make(Change change);

  Tree now_, disk_;
  std::vector<Change> log_;  // not yet on the disk, in order
  uint64_t done_ = 0;        // changes that are
  uint64_t dies_at_ = 0;
};

}  // namespace salius::sim
