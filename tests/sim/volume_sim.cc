// The sessions of a lifetime of a simulated volume, and what comes between them.
#include "tests/sim/volume_sim.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/volume/backing_dirs.h"
#include "common/check.h"
#include "common/file.h"
#include "recovery/agree/record_set.h"
#include "recovery/report.h"
#include "storage/apply.h"
#include "storage/volume_config.h"

namespace salius::sim {
namespace {

using Call = MemoryBacking::Call;

constexpr int kDirectory = O_RDONLY | O_DIRECTORY;
constexpr uint64_t kDescriptors = 1 << 16;
constexpr int kMostLives = 3;
constexpr int kQuietRuns = 4;  // after this number of runs nothing cuts a recovery off

// Chances. The comment says to what each applies.
constexpr double kDies = 0.75;         // per session: at a drawn moment
constexpr double kPowerCut = 0.6;      // per death
constexpr double kMarkCounts = 0.7;    // per other death: recovery relies on the applied mark
constexpr double kDiskError = 0.12;    // per session: applies may fail
constexpr double kRecoveryDies = 0.4;  // per run
constexpr double kCutAfterRecovery = 0.2;
constexpr double kClosed = 0.15;  // per session that does not die: it is closed
constexpr double kWaits = 0.15;   // per session: names wait, as the control

constexpr double kExternal = 0.7;  // per session of a lifetime that has such ones
// One lifetime in three has them: the seeds of tests/sim/regressions/volume keep their events.
constexpr uint64_t kExternalOf = 3;
constexpr uint64_t kOutsideSeed = 0xBF58476D1CE4E5B9;
// In one lifetime in five pages leave memory, so that records go into lanes.
constexpr uint64_t kLanesOf = 5;
constexpr uint64_t kLanesSeed = 0x94D049BB133111EB;

constexpr char kInSync[] = "while the disk is synced";

bool Changes(Call call) {
  switch (call) {
    case Call::kOpen:
    case Call::kStat:
    case Call::kGetXattr:
    case Call::kRead:
    case Call::kReadDir:
    case Call::kSpace:
      return false;
    default:
      return true;
  }
}

MemoryBacking::Options DiskOptions() {
  MemoryBacking::Options options;
  options.block_bytes = 512;  // trees are copied often
  options.dir_batch = 3;      // listings take several calls
  return options;
}

}  // namespace

VolumeSim::VolumeSim(uint64_t seed, std::function<void(std::string)> trace,
                     const std::set<uint64_t>* without)
    : random_(seed),
      trace_(std::move(trace)),
      without_(without),
      outside_(seed ^ kOutsideSeed),
      lanes_random_(seed ^ kLanesSeed),
      lanes_life_(seed % kLanesOf == 0),
      external_life_(seed % kExternalOf == kExternalOf - 1),
      backing_(DiskOptions()) {
  backing_.OnEachCall([this](Call call) { return Decide(call); });
}

VolumeSim::~VolumeSim() {
  simulating_ = false;
  EndSession();
}

template <typename... Args>
void VolumeSim::Say(const Args&... args) {
  if (trace_) trace_(absl::StrCat(args...));
}

void VolumeSim::Break(std::string why) {
  Say("BROKEN ", why);
  if (outcome_.broken.empty()) outcome_.broken = std::move(why);
}

bool VolumeSim::Fault(const char* what, double chance) {
  if (!random_.Chance(chance)) return false;
  const uint64_t number = ++outcome_.faults;
  if (without_ != nullptr && without_->contains(number)) return false;
  Count(what);
  Say("fault ", number, ": ", what);
  return true;
}

MemoryBacking::Turn VolumeSim::Decide(Call call) {
  MemoryBacking::Turn turn;
  if (!simulating_ || !Changes(call) || std::this_thread::get_id() != user_) return turn;
  if (random_.Chance(write_back_)) {
    turn.before =
        random_.Chance(0.5) ? MemoryBacking::WriteBack::kJournal : MemoryBacking::WriteBack::kAll;
  }
  const bool applying = stream_ != nullptr && stream_->applying();
  const bool syncing = stream_ != nullptr && stream_->syncing();
  const char* const during = recovering_ ? "while recovery changes the disk"
                             : applying  ? "while a record is applied"
                             : syncing   ? kInSync
                                         : "while an object is made";
  if (!doom_.Passes(during)) {
    turn.error = EIO;
  } else if ((applying || syncing) && Fault("EIO of an apply or a sync", apply_error_)) {
    disk_error_ = true;
    turn.error = EIO;
  }
  return turn;
}

void VolumeSim::OpenRoot() {
  root_ = std::move(*backing_.Reopen(backing_.root(), kDirectory));
  salius_ = std::move(*backing_.OpenAt(root_.get(), kSaliusDir, kDirectory));
  file_ = std::move(*backing_.OpenAt(salius_.get(), kLockFileName, O_RDWR));
}

// Makes a volume, and the files that were in its directory before.
void VolumeSim::MakeOldTree() {
  const int root = backing_.root();
  SALIUS_CHECK_OK(WriteFileId(backing_, root, kRootFileId));
  SALIUS_CHECK_OK(backing_.MkdirAt(root, kSaliusDir, 0700));
  const BackingFd salius = std::move(*backing_.OpenAt(root, kSaliusDir, kDirectory));
  for (const char* const name : {kOpenDirName, kTmpDirName}) {
    SALIUS_CHECK_OK(backing_.MkdirAt(salius.get(), name, 0700));
  }
  SALIUS_CHECK_OK(backing_.MakeNode(salius.get(), kLockFileName, S_IFREG | 0600, 0));
  SALIUS_CHECK_OK(backing_.MkdirAt(root, "a", 0755));
  const BackingFd old = std::move(*backing_.OpenAt(root, "a", kDirectory));
  SALIUS_CHECK_OK(backing_.MakeNode(old.get(), "b", S_IFREG | 0644, 0));
  SALIUS_CHECK_OK(backing_.MkdirAt(old.get(), "c", 0755));
  const BackingFd file = backing_.NewFile("d");
  SALIUS_CHECK_OK(backing_.Pwrite(file.get(), "was there before", 0));
  SALIUS_CHECK_OK(backing_.LinkFd(file.get(), old.get(), "d"));
  SALIUS_CHECK_OK(backing_.SyncFs(root));
}

void VolumeSim::StartSession() {
  ++epoch_;
  log_ = StreamLog();
  done_.clear();
  last_.clear();
  nameless_.clear();
  removed_.clear();
  inodes_.clear();
  acked_ = 0;
  disk_error_ = false;
  waits_ = random_.Chance(kWaits);
  external_ = external_life_ && !waits_ && outside_.Chance(kExternal);
  ordered_ = external_life_ && !waits_ && !external_;
  page_.Store(0, 0);
  const bool early = !waits_ || random_.Chance(0.5);  // otherwise with dirsync
  write_back_ = random_.Chance(0.5) ? 0 : 0.05;
  apply_error_ = random_.Chance(kDiskError) ? 0.03 : 0;
  StreamChances chances;
  const double busy = random_.Chance(0.5) ? 0.03 : 0.3;
  chances.durable = random_.Chance(0.3) ? 0.5 : busy;
  chances.apply = busy;
  auto dirs = BackingDirs::Open(
      backing_, {.root = root_.get(), .salius = salius_.get(), .file = file_.get()});
  SALIUS_CHECK_OK(dirs);
  constexpr FetchMode kModes[] = {FetchMode::kBlocking, FetchMode::kAsyncFg, FetchMode::kAsyncBg,
                                  FetchMode::kLazy};
  const FetchMode fetch = lanes_life_ ? kModes[lanes_random_.Below(4)] : kDefaultFetch;
  lanes_ = std::make_unique<QueueWorkers>();
  auto volume = Volume::OpenIn(
      std::move(*dirs), next_id_, kDescriptors,
      VolumeOptions{.config = DefaultVolumeConfig(),
                    .names_early = early,
                    .dirsync = waits_,
                    .fetch = fetch,
                    .workers = lanes_.get(),
                    .contract = {.commit = external_  ? Commit::kExternal
                                           : ordered_ ? Commit::kOrdered
                                                      : Commit::kSync,
                                 .fsync_orders = ordered_}},
      [&](ApplySink& sink) -> absl::StatusOr<std::unique_ptr<RecordStream>> {
        auto stream =
            std::make_unique<VolumeStream>(sink, epoch_, log_, next_id_, doom_, random_, chances,
                                           page_, *lanes_, lanes_random_);
        stream_ = stream.get();
        return stream;
      });
  SALIUS_CHECK_OK(volume);
  volume_ = std::move(*volume);
  Say("session ", epoch_, waits_ ? ", names wait" : "", external_ ? ", external" : "", ordered_ ? ", ordered" : "");
}

// Runs a session until it ends or the process dies.
void VolumeSim::Session() {
  constexpr uint64_t kMoments[] = {20, 100, 500};
  doom_.DieAfter(
      Fault("death at a drawn moment", kDies) ? 1 + random_.Below(kMoments[random_.Below(3)]) : 0);
  simulating_ = true;
  const uint64_t steps = 20 + random_.Below(120);
  for (uint64_t i = 0; i < steps && Alive() && !Failed(); ++i) {
    if (lanes_life_ && lanes_random_.Chance(0.2)) backing_.DropAllPages();
    stream_->Step();
    if (Alive() && !Failed()) Act();
    if (external_ && Alive() && !Failed()) ActOutside();
    if (ordered_ && Alive() && !Failed()) ActOrdered();
  }
  if (Alive() && Failed()) {
    Say("the volume has failed: ", volume_->health().message());
    ++outcome_.disk_failures;
    FsyncDir();
    if (Alive() && !open_.empty()) Fsync();
  }
}

void VolumeSim::EndSession() {
  if (volume_ == nullptr) return;
  for (const Listing& listing : listings_) volume_->open_files().Release(listing.handle);
  for (const OpenFile& file : open_) volume_->open_files().Release(file.handle);
  for (const auto& [id, node] : nodes_) volume_->names().Forget(*node, 1);
  listings_.clear();
  open_.clear();
  nodes_.clear();
  stream_ = nullptr;
  volume_.reset();
}

// Ends the process, and perhaps the machine.
void VolumeSim::Die() {
  simulating_ = false;
  root_.Reset();
  salius_.Reset();
  file_.Reset();
  if (Fault("power cut", kPowerCut)) {
    same_life_ = false;
    backing_.PowerCut();
  } else {
    backing_.EndProcess();
  }
  doom_.DieAfter(0);
  OpenRoot();
}

TreeModel VolumeSim::Expected(Seq decided) const {
  TreeModel tree = base_;
  for (const Done& done : done_) {
    if (done.seq > decided || (done.cancel != 0 && done.cancel <= decided)) continue;
    done.effect(tree);
  }
  tree.Collect();
  return tree;
}

absl::Status VolumeSim::RunRecovery(Seq decided) {
  if (same_life_) {
    SALIUS_RETURN_IF_ERROR(backing_.SyncFs(root_.get()));
    log_.checkpoint = std::max(log_.checkpoint, log_.mark);
    same_life_ = false;
  }
  recovery::RecordSet set;
  for (Seq seq = log_.checkpoint + 1; seq <= decided; ++seq) {
    const RecordRef& record = log_.records[seq - 1];
    SALIUS_CHECK_OK(set.Add(EncodeRecord(record->header(), record->body())));
  }
  std::vector<const recovery::RecordView*> records;
  for (const recovery::RecordView& view : set.views()) records.push_back(&view);
  RecoveryReport report;
  recovery::ReplayContext context;
  context.backing = &backing_;
  context.root_fd = root_.get();
  context.salius_fd = salius_.get();
  context.step = [this](RecoveryStep) -> absl::Status {
    return doom_.Passes("at a step of recovery") ? absl::OkStatus() : absl::AbortedError("death");
  };
  context.progress = [](const RecoveryProgress&) {};
  context.report = &report;
  SALIUS_RETURN_IF_ERROR(
      recovery::ReplayRecords(records, &report, [&](const recovery::ReplayPlan& plan) {
        return recovery::Replay(context, plan);
      }).status());
  SALIUS_RETURN_IF_ERROR(backing_.SyncFs(root_.get()));
  if (!report.refused.empty()) Break("I1: recovery leaves out " + report.refused.front());
  if (!report.lost_and_found.empty()) {
    Break("I2: recovery finds " + report.lost_and_found.front() + " in the way");
  }
  if (!doom_.Passes("before a recovery is noted")) return absl::AbortedError("death");
  log_.checkpoint = decided;
  return recovery::CleanSaliusDir(context);
}

// Recovers the first `decided` records.
void VolumeSim::Recover(Seq decided) {
  Say("recovery of ", decided, " of ", log_.records.size(), " records, checkpoint ",
      log_.checkpoint, ", applied ", log_.mark, same_life_ ? " (counts)" : "");
  Mix(decided);
  ++outcome_.recoveries;
  outcome_.same_lives += same_life_ ? 1 : 0;
  for (int run = 1; outcome_.broken.empty(); ++run) {
    ++outcome_.recovery_runs;
    const bool dies = run < kQuietRuns && Fault("recovery cut off", kRecoveryDies);
    doom_.DieAfter(dies ? 1 + random_.Below(60) : 0);
    recovering_ = simulating_ = true;
    const absl::Status status = RunRecovery(decided);
    recovering_ = simulating_ = false;
    if (status.ok()) break;
    if (!doom_.dead()) return Break(absl::StrCat("I1: recovery fails: ", status.message()));
    Say("recovery dies ", doom_.during());
    Count(doom_.during());
    Die();
    if (log_.checkpoint == decided) break;  // it is noted
  }
}

void VolumeSim::CheckSaliusDir() {
  for (const char* const place : {kTmpDirName, kOpenDirName}) {
    const BackingFd dir = std::move(*backing_.OpenAt(salius_.get(), place, kDirectory));
    const auto names = backing_.ListDir(dir.get());
    SALIUS_CHECK_OK(names);
    if (!names->empty()) {
      Break(absl::StrCat("I7: ", names->front(), " is left in .salius/", place));
    }
  }
  if (backing_.StatAt(salius_.get(), kLostDirName).ok()) Break("I2: .salius/lost is there");
}

ObjectId VolumeSim::AddFromDisk(int fd, const std::string& name, TreeModel& tree,
                                std::map<ino_t, ObjectId>& seen) {
  const BackingFd there = std::move(*backing_.OpenAt(fd, name, O_PATH | O_NOFOLLOW));
  const struct stat st = *backing_.Stat(there.get());
  const auto [known, fresh] = seen.emplace(st.st_ino, st.st_ino);
  if (!fresh) return known->second;
  ModelObject object;
  object.mode = st.st_mode;
  object.uid = st.st_uid;
  object.gid = st.st_gid;
  const auto xattrs = backing_.XattrNames(there.get());
  SALIUS_CHECK_OK(xattrs);
  for (const std::string& xattr : *xattrs) {
    if (absl::StartsWith(xattr, "user."))
      object.xattrs[xattr] = *backing_.XattrValue(there.get(), xattr);
  }
  if (S_ISLNK(st.st_mode)) object.data = *backing_.ReadLinkOf(there.get());
  if (object.is_file()) {
    const BackingFd file = std::move(*backing_.Reopen(there.get(), O_RDONLY));
    object.mtime = st.st_mtim.tv_sec;
    object.data.resize(static_cast<size_t>(st.st_size));
    SALIUS_CHECK_OK(backing_.Pread(file.get(), object.data.data(), object.data.size(), 0));
  }
  tree.Add(st.st_ino, object);
  if (!object.is_dir()) return st.st_ino;
  const auto names = backing_.ListDir(there.get());
  SALIUS_CHECK_OK(names);
  for (const std::string& entry : *names) {
    tree.Link(AddFromDisk(there.get(), entry, tree, seen), {st.st_ino, entry});
  }
  return st.st_ino;
}

TreeModel VolumeSim::TreeOnDisk() {
  TreeModel tree;
  const struct stat st = *backing_.Stat(root_.get());
  ModelObject& root = tree.at(TreeModel::kRoot);
  root.mode = st.st_mode;
  root.uid = st.st_uid;
  root.gid = st.st_gid;
  const auto xattrs = backing_.XattrNames(root_.get());
  SALIUS_CHECK_OK(xattrs);
  for (const std::string& xattr : *xattrs) {
    if (absl::StartsWith(xattr, "user."))
      root.xattrs[xattr] = *backing_.XattrValue(root_.get(), xattr);
  }
  std::map<ino_t, ObjectId> seen;
  const auto names = backing_.ListDir(root_.get());
  SALIUS_CHECK_OK(names);
  for (const std::string& name : *names) {
    if (name == kSaliusDir) continue;
    tree.Link(AddFromDisk(root_.get(), name, tree, seen), {TreeModel::kRoot, name});
  }
  return tree;
}

void VolumeSim::Verify(const TreeModel& expected) {
  CheckSaliusDir();
  if (std::string found = Difference(TreeOnDisk(), expected); !found.empty()) {
    Break("I2: " + found);
  }
}

Outcome VolumeSim::Run() {
  MakeOldTree();
  OpenRoot();
  base_ = TreeOnDisk();
  next_object_ = 1'000'000;
  const uint64_t lives = 1 + random_.Below(kMostLives);
  for (uint64_t life = 0; life < lives && outcome_.broken.empty(); ++life) {
    model_ = base_;
    StartSession();
    Session();
    if (!outcome_.broken.empty()) break;
    Seq decided = 0;
    bool closed = false;
    if (!doom_.dead() && !Failed() && Fault("volume closed", kClosed)) {
      while (!open_.empty()) Close(0);
      closed = Alive() && volume_->Close().ok();
    }
    if (doom_.dead()) {
      Say("the process dies ", doom_.during());
      Count(doom_.during());
    } else if (!closed) {
      Count("between two calls");
    }
    const bool in_sync = doom_.dead() && doom_.during() == kInSync;
    same_life_ = !closed && !in_sync && random_.Chance(kMarkCounts);
    outcome_.records += log_.records.size();
    simulating_ = false;
    EndSession();
    const Seq issued = log_.records.size();
    decided = closed || random_.Chance(0.4) ? issued
              : random_.Chance(0.6)         ? log_.durable
                                    : log_.durable + random_.Below(issued - log_.durable + 1);
    if (decided < acked_) {
      Break(absl::StrCat(acked_by_, ": ", acked_, " is acknowledged, and only ", decided,
                         " is durable"));
      break;
    }
    const TreeModel expected = Expected(decided);
    Die();
    if (!closed) Recover(decided);
    if (Fault("death after recovery", kCutAfterRecovery)) Die();
    // Removes what is left in .salius of a clean volume, as the next session does.
    SALIUS_CHECK_OK(BackingDirs::Open(
        backing_, {.root = root_.get(), .salius = salius_.get(), .file = file_.get()}));
    if (outcome_.broken.empty()) Verify(expected);
    base_ = expected;
  }
  return outcome_;
}

}  // namespace salius::sim
