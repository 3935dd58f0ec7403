// A deterministic simulation of one volume and the programs that use it, from a 64-bit seed:
// - the shipping client/volume on a backing in memory, with names that return before they are
//   durable
// - a record stream that draws which records are durable and applied (volume_stream.h)
// - the shipping replay of recovery/, which is cut off and run again
//
// A lifetime is a few sessions, each ended by a death of the process or a power cut, or closed. The
// process dies at any record, at any change of the disk, or between two calls of the programs.
// While a session runs, everything that the programs see is compared with a model: look-ups,
// listings, link counts, attributes, contents, and the error of each call. After each recovery the
// tree is compared with the model:
//
//   I1  what an fsync or a synchronous write acknowledged is there: data, names, attributes
//   I2  the tree is the result of the first T records, for some T; no object is without its name,
//       and no name without its object
//   I7  cut off and run again, recovery reaches the same tree; nothing is left in .salius
//   I8  once the disk has failed no sync succeeds
//   I9  what an output followed, or a process outside saw, is there (commit=external)
//
// cluster_sim.h simulates the session and the replicas below the stream, and data past the log.
//
// Threads: one, and the volume's own, which find nothing to do.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "client/gate/page.h"
#include "client/volume/node.h"
#include "client/volume/types.h"
#include "client/volume/volume.h"
#include "common/ids.h"
#include "common/random.h"
#include "log/record.h"
#include "recovery/replay/replay.h"
#include "storage/backing.h"
#include "tests/sim/outcome.h"
#include "tests/sim/volume_model.h"
#include "tests/sim/volume_stream.h"
#include "tests/unit/storage/memory_backing.h"
#include "tests/unit/volume/queue_workers.h"

namespace salius::sim {

class VolumeSim {
 public:
  // Draws a lifetime from `seed`. `trace` (may be null) gets one line per event. Faults are
  // numbered from 1; those in `without` (may be null) do not happen.
  VolumeSim(uint64_t seed, std::function<void(std::string)> trace,
            const std::set<uint64_t>* without);
  ~VolumeSim();
  Outcome Run();

 private:
  static constexpr uid_t kUser = 1000;
  static constexpr mode_t kUmask = 022;
  static constexpr size_t kMostOpen = 5;  // files

  // A change of the tree that a record says.
  struct Done {
    Seq seq = 0;
    Seq cancel = 0;  // the record that takes it back; 0: none
    std::function<void(TreeModel&)> effect;
  };
  // A call of a program that changes the tree.
  struct Change {
    std::string what;  // for the trace
    Op op = Op::kWrite;
    int error = 0;  // that the call gives
    std::vector<ObjectId> objects;
    std::vector<ModelPlace> places;
    std::function<void(TreeModel&)> effect;
    bool logged = true;  // a record must say it
  };
  struct OpenFile {
    Handle* handle = nullptr;
    ObjectId id = 0;
  };
  // A listing that was begun.
  struct Listing {
    Handle* handle = nullptr;
    ObjectId dir = 0;
    uint64_t offset = 0;
    std::set<std::string> begun;    // the names at its begin
    std::set<std::string> changed;  // names that changed since
    std::multiset<std::string> seen;
  };

  // ---- volume_sim.cc: sessions, deaths, recoveries
  bool Fault(const char* what, double chance);
  void Count(const char* what) { ++outcome_.of_each[what]; }
  template <typename... Args>
  void Say(const Args&... args);
  void Break(std::string why);
  void Mix(uint64_t value) { outcome_.digest = outcome_.digest * 1'099'511'628'211 + value; }
  MemoryBacking::Turn Decide(MemoryBacking::Call call);
  void MakeOldTree();
  void OpenRoot();
  void StartSession();
  void Session();
  void EndSession();
  void Die();
  TreeModel Expected(Seq decided) const;
  void Recover(Seq decided);
  // Runs recovery once. OK when everything is done.
  absl::Status RunRecovery(Seq decided);
  void Verify(const TreeModel& expected);
  TreeModel TreeOnDisk();
  ObjectId AddFromDisk(int fd, const std::string& name, TreeModel& tree,
                       std::map<ino_t, ObjectId>& seen);
  void CheckSaliusDir();

  // ---- volume_program.cc: calls, and files
  void Act();
  bool Alive() const { return outcome_.broken.empty() && !doom_.dead(); }
  bool Failed() const { return !volume_->health().ok(); }
  // Judges a call that returned `status`; `before`: the last record issued before it. Returns
  // whether the call succeeded.
  bool Judge(const Change& change, Seq before, const absl::Status& status);
  void Acknowledge(Seq seq, const char* by, const char* guarantee = "I1");
  ObjectId AnyDir();
  ModelPlace AnyPlace(double there);
  ObjectId AnyObject(bool (ModelObject::*wanted)() const);
  mode_t AnyMode();
  ModelObject NewObject(mode_t mode);
  Node* NodeOf(ObjectId id);
  Node* Keep(ObjectId id, const Entry& entry);
  void ForgetSome();
  void Forget(ObjectId id);
  void Open();
  void Close(size_t index);
  void CloseAny();
  void Write();
  void Truncate();
  void SetAttr();
  void SetXattr();
  void Sync(Handle& handle, ObjectId id);
  void Fsync();
  void FsyncDir();

  // ---- volume_names.cc
  Change Making(const char* what, ObjectId id, const ModelObject& object, const ModelPlace& place);
  void Create();
  void MakeOther();
  void MakeTmpFile();
  void Link();
  void Unlink();
  void RemoveDir();
  void Rename();

  // ---- volume_checks.cc
  void CheckEntry(ObjectId id, const Entry& entry);
  void CheckLookup();
  void CheckListing();
  void CheckContent();
  void CheckXattrs();
  void BeginListing();
  void ContinueListing(size_t index);
  void ContinueAny();

  // ---- volume_outside.cc: commit=external
  void ActOutside();
  // Lets a gated process make an output.
  void Output();
  // Lets a process look, and sends its answer when that may be sent. `inside`: its outputs are
  // gated.
  void Look(bool inside);
  // Lets the process that has a file of early return execute another program, or give it on: the
  // next sync on it may be one of a process outside.
  void SyncFromOutside();
  // With commit=ordered: a dsync or an osync, now and then.
  void ActOrdered();
  // Waits for a record (0: none) on behalf of an answer or an output, which `by` names. Returns
  // whether it is durable.
  bool Waited(Seq seq, const char* by);

  Random random_;
  const std::function<void(std::string)> trace_;
  const std::set<uint64_t>* const without_;
  Outcome outcome_;
  Random outside_;  // draws of commit=external and ordered only, so that other lifetimes keep their events
  Random lanes_random_;    // draws of the fetch policy and the lanes, likewise
  const bool lanes_life_;  // pages leave memory
  const bool external_life_;  // some sessions have commit=external or ordered

  MemoryBacking backing_;
  BackingFd root_, salius_, file_;
  Doom doom_;
  const std::thread::id user_ = std::this_thread::get_id();
  bool simulating_ = false;  // calls of the backing are moments at which the process may die
  bool recovering_ = false;
  bool disk_error_ = false;  // an error was given to the session
  double write_back_ = 0, apply_error_ = 0;

  TreeModel base_;   // when the session began
  TreeModel model_;  // as the programs see it
  ObjectId next_object_ = TreeModel::kRoot + 1;
  std::vector<Done> done_;
  StreamLog log_;
  FileId next_id_ = kRootFileId + 1;
  Epoch epoch_ = 0;
  Seq acked_ = 0;
  const char* acked_by_ = "I1";  // the guarantee by which
  bool same_life_ = false;  // the page cache outlived the process

  std::unique_ptr<QueueWorkers> lanes_;
  std::unique_ptr<Volume> volume_;
  VolumeStream* stream_ = nullptr;
  bool external_ = false;  // commit=external
  bool ordered_ = false;   // commit=ordered
  gate::Page page_;
  bool waits_ = false;  // each operation on names is durable when it returns
  const Caller caller_{.uid = kUser, .gid = kUser, .umask = kUmask};
  std::map<ObjectId, Node*> nodes_;  // those that the kernel knows
  std::map<ObjectId, ino_t> inodes_;
  std::map<ObjectId, Seq> last_;  // the last record of each object that this session changed
  std::set<ObjectId> nameless_;   // files that were made without a name
  std::set<ObjectId> removed_;    // files that lost their last name
  std::vector<OpenFile> open_;
  std::vector<Listing> listings_;
};

}  // namespace salius::sim
