// A model of the backing directory: the effect of records, of a power cut, and of the replay of a
// recovery's plan. Small contents, no permissions: the simulator looks for lost, reordered and
// revived operations.
//
// Power cuts: changes of names reach the disk in order, as a journal commits them. Data of files
// reaches it in any order, or in part, until a sync. A sync that fails leaves data in the page
// cache that is marked clean, and that no later sync will write.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/random.h"
#include "log/record.h"
#include "recovery/replay/replay_target.h"
#include "tests/sim/cluster_options.h"
#include "tests/sim/disk.h"

namespace salius::sim {

// Names and contents.
struct Tree {
  std::map<FileId, std::string> files;  // content by id
  std::map<recovery::DirName, FileId> names;
  bool operator==(const Tree&) const = default;

  // Performs the record. A record for a file that does not exist does nothing.
  void Apply(const RecordHeader& header, std::string_view body);
  // Forgets files without a name.
  void Collect();
};
bool ChangesNames(Op op);

// Returns the first difference of the trees, for people; empty when there is none.
std::string Difference(const Tree& got, const Tree& expected);

// The backing directory of one machine.
class FsModel : public recovery::ReplayTarget {
 public:
  explicit FsModel(const ClusterOptions& options) : options_(options) {}
  const Tree& tree() const { return now_; }

  // Applies a record for the session. Errors: RESOURCE_EXHAUSTED (nothing was changed).
  absl::Status Apply(const RecordHeader& header, std::string_view body);
  // Applies a record that meets EIO: any part of a write, nothing of another operation.
  void ApplyPart(const RecordHeader& header, std::string_view body, Random& random);
  // Writes past the log (bulk data); an fsync of it is SyncUpTo(changes()).
  absl::Status WriteBulk(FileId id, uint64_t offset, std::string_view data);
  // changes() returns the number of changes so far. SyncUpTo puts the first `changes` on the disk;
  // FailSync makes that sync fail.
  uint64_t changes() const { return done_ + log_.size(); }
  void SyncUpTo(uint64_t changes);
  void FailSync(uint64_t changes, Random& random);
  // Drops clean data from the page cache: lost data is read from the disk again.
  void DropLost();

  // Ends the machine or process. `session`: files without a name vanish.
  void Crash(Random& random, Death death, bool session);
  // Makes the n-th change from now on (1: the next) fail: once, with INTERNAL.
  void DieAfter(uint64_t n) { trouble_ = {n, kDeath}; }
  void BreakAfter(uint64_t n) { trouble_ = {n, kEio}; }
  // Makes that change and later ones fail with RESOURCE_EXHAUSTED, until HasRoom().
  void FullAfter(uint64_t n) { trouble_ = {n, kNoSpace}; }
  void HasRoom() { trouble_ = {}; }
  // Makes the next sync of a recovery fail, once.
  void FailNextSync(Random* random) { fail_sync_ = random; }
  bool dead() const { return dead_; }

  absl::Status Check(const recovery::ReplayContext& context,
                     const recovery::ReplayPlan& plan) override;
  recovery::ReplayResult Replay(const recovery::ReplayContext& context,
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
    bool lost = false;  // will never be on the disk
    bool names() const { return set_name || make || ChangesNames(header.op); }
    void Do(Tree& tree) const;
    bool DoPart(Tree& tree, Random& random) const;
  };
  enum Kind { kDeath, kEio, kNoSpace };
  struct Trouble {
    uint64_t after = 0;  // 0: none
    Kind kind = kDeath;
  };
  absl::Status Make(Change change);

  const ClusterOptions& options_;
  Tree now_, disk_;
  std::vector<Change> log_;  // not yet on the disk, in order
  uint64_t done_ = 0;        // number of changes that are
  Trouble trouble_;
  Random* fail_sync_ = nullptr;
  bool dead_ = false;
};

}  // namespace salius::sim
