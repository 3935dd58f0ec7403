// A model of the backing directory: what records do to it, what a power cut leaves of it, and
// replay of a recovery's plan on it. Small contents, no permissions: the simulator is after lost,
// reordered and revived operations.
//
// Power cuts. Changes of names reach the disk in order, as a journal commits them; data of files
// reaches it in any order, or in part, until a sync. A sync that fails leaves data that the page
// cache has and calls clean, and that no later sync will write.
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
#include "recovery/replay_target.h"
#include "tests/sim/cluster_options.h"
#include "tests/sim/disk.h"

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
  explicit FsModel(const ClusterOptions& options) : options_(options) {}
  const Tree& tree() const { return now_; }

  // A record is applied by the session. Errors: RESOURCE_EXHAUSTED (nothing was changed).
  absl::Status Apply(const RecordHeader& header, std::string_view body);
  // EIO: of a write any part may have been done, of anything else nothing.
  void ApplyPart(const RecordHeader& header, std::string_view body, Random& random);
  // A write past the log (bulk data); an fsync of it is SyncUpTo(changes()).
  absl::Status WriteBulk(FileId id, uint64_t offset, std::string_view data);
  // How many changes there were so far; and: all of the first `changes` are on the disk, or the
  // sync of them failed.
  uint64_t changes() const { return done_ + log_.size(); }
  void SyncUpTo(uint64_t changes);
  void FailSync(uint64_t changes, Random& random);
  // The page cache forgets what is clean: what was lost is read from the disk again.
  void DropLost();

  // `session`: files without a name vanish.
  void Crash(Random& random, Death death, bool session);
  // The n-th change from now on (1: the next) fails: once, with INTERNAL.
  void DieAfter(uint64_t n) { trouble_ = {n, kDeath}; }
  void BreakAfter(uint64_t n) { trouble_ = {n, kEio}; }
  // And this one, with RESOURCE_EXHAUSTED, until HasRoom().
  void FullAfter(uint64_t n) { trouble_ = {n, kNoSpace}; }
  void HasRoom() { trouble_ = {}; }
  // The next sync of a recovery fails, once.
  void FailNextSync(Random* random) { fail_sync_ = random; }
  bool dead() const { return dead_; }

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
  uint64_t done_ = 0;        // changes that are
  Trouble trouble_;
  Random* fail_sync_ = nullptr;
  bool dead_ = false;
};

}  // namespace salius::sim
