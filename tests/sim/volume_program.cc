// The programs of a simulated volume: their calls, and the comparison of each result with the model.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/volume/contract.h"
#include "common/check.h"
#include "common/file.h"
#include "storage/apply.h"
#include "tests/sim/volume_sim.h"

namespace salius::sim {
namespace {

constexpr uint64_t kNames = 6;   // "a" to "f"
constexpr uint64_t kSpan = 100;  // offsets and sizes are below
constexpr size_t kMostWritten = 60;
constexpr uint64_t kNearSecondPage = 4096 - 80;

}  // namespace

// ---- Judgement

void VolumeSim::Acknowledge(Seq seq, const char* by, const char* guarantee) {
  if (seq > acked_) trace_ ? trace_(absl::StrCat(by, " acknowledges ", seq)) : void();
  if (seq <= acked_) return;
  acked_ = seq;
  acked_by_ = guarantee;
}

bool VolumeSim::Judge(const Change& change, Seq before, const absl::Status& status) {
  Seq seq = 0;
  Seq cancel = 0;
  for (size_t i = before; i < log_.records.size(); ++i) {
    const RecordHeader& header = log_.records[i]->header();
    if (header.op == change.op) seq = header.seq;
    if (header.op == Op::kCancel && header.arg0 == seq) cancel = header.seq;
  }
  const int got = status.ok() ? 0 : StatusErrno(status);
  Mix(static_cast<uint64_t>(change.op) * 1000 + static_cast<uint64_t>(got));
  Mix(seq);
  if (trace_) {
    trace_(absl::StrCat(change.what, ": ", ErrorName(got),
                        seq == 0 ? "" : absl::StrCat(", record ", seq),
                        cancel == 0 ? "" : absl::StrCat(", taken back by ", cancel)));
  }
  if (seq != 0) done_.push_back({seq, cancel, change.effect});
  outcome_.cancels += cancel == 0 ? 0 : 1;
  if (doom_.dead()) return false;
  if (!status.ok()) {
    if (disk_error_ && (got == EIO || got == EROFS)) return false;
    if (got != change.error) {
      Break(absl::StrCat("I2: ", change.what, " gives ", ErrorName(got), ", not ",
                         ErrorName(change.error)));
    } else if (seq != 0 && cancel == 0) {
      Break(absl::StrCat("I2: ", change.what, " is refused after its record was stamped"));
    }
    return false;
  }
  if (change.error != 0) {
    Break(absl::StrCat("I2: ", change.what, " succeeds and should give ", ErrorName(change.error)));
    return false;
  }
  if (seq == 0 && change.logged) {
    Break(absl::StrCat("I1: no record says ", change.what));
    return false;
  }
  if (waits_ && IsNameOp(change.op)) Acknowledge(seq, "the operation");
  change.effect(model_);
  for (const ObjectId id : change.objects) last_[id] = seq;
  for (const ModelPlace& place : change.places) {
    for (Listing& listing : listings_) {
      if (listing.dir == place.dir) listing.changed.insert(place.name);
    }
  }
  for (const ObjectId id : change.objects) {
    if (model_.IsNamed(id)) continue;
    Forget(id);
    if (change.op == Op::kUnlink || change.op == Op::kRename) removed_.insert(id);
  }
  return true;
}

// ---- Choices

ObjectId VolumeSim::AnyDir() {
  const std::vector<ObjectId> dirs = model_.Dirs();
  return dirs[random_.Below(dirs.size())];
}

// Returns a name in any directory; with this chance one that is there.
ModelPlace VolumeSim::AnyPlace(double there) {
  const ObjectId dir = AnyDir();
  const auto& names = model_.at(dir).names;
  if (!names.empty() && random_.Chance(there)) {
    return {dir, std::next(names.begin(), static_cast<long>(random_.Below(names.size())))->first};
  }
  return {dir, std::string(1, static_cast<char>('a' + random_.Below(kNames)))};
}

// Returns an object of this kind (null: of any) that has a name; 0 when there is none.
ObjectId VolumeSim::AnyObject(bool (ModelObject::*wanted)() const) {
  std::vector<ObjectId> found;
  for (const auto& [id, object] : model_.objects()) {
    if (model_.IsNamed(id) && (wanted == nullptr || (object.*wanted)())) found.push_back(id);
  }
  return found.empty() ? 0 : found[random_.Below(found.size())];
}

mode_t VolumeSim::AnyMode() {
  constexpr mode_t kModes[] = {0644, 0600, 0755, 0777, 0400};
  return kModes[random_.Below(std::size(kModes))];
}

ModelObject VolumeSim::NewObject(mode_t mode) {
  ModelObject object;
  object.mode = (mode & S_IFMT) | (mode & 07777 & ~kUmask);
  object.uid = object.gid = kUser;
  return object;
}

// ---- The kernel's inodes

Node* VolumeSim::Keep(ObjectId id, const Entry& entry) {
  CheckEntry(id, entry);
  const auto [known, fresh] = nodes_.emplace(id, entry.node);
  if (!fresh) {
    if (known->second != entry.node) Break("I2: an object has two nodes");
    volume_->names().Forget(*entry.node, 1);
  }
  return known->second;
}

// Returns the node of an object that has a name: the known one, or one that is looked up. Null when
// the process dies meanwhile.
Node* VolumeSim::NodeOf(ObjectId id) {
  if (id == TreeModel::kRoot) return &volume_->root();
  const auto known = nodes_.find(id);
  if (known != nodes_.end()) return known->second;
  ModelPlace place;
  for (const auto& [dir, object] : model_.objects()) {
    if (!object.is_dir() || !model_.IsNamed(dir)) continue;
    for (const auto& [name, there] : object.names) {
      if (there == id) place = {dir, name};
    }
  }
  Node* const dir = NodeOf(place.dir);
  if (dir == nullptr) return nullptr;
  const absl::StatusOr<Entry> entry = volume_->names().Lookup(*dir, place.name);
  if (!Alive()) {
    if (entry.ok()) volume_->names().Forget(*entry->node, 1);
    return nullptr;
  }
  if (entry.ok()) return Keep(id, *entry);
  if (!disk_error_) {
    Break(absl::StrCat("I2: look-up of ", place.name, " gives ",
                       ErrorName(StatusErrno(entry.status()))));
  }
  return nullptr;
}

void VolumeSim::Forget(ObjectId id) {
  const auto known = nodes_.find(id);
  if (known == nodes_.end()) return;
  volume_->names().Forget(*known->second, 1);
  nodes_.erase(known);
}

void VolumeSim::ForgetSome() {
  std::vector<ObjectId> known;
  for (const auto& [id, node] : nodes_) known.push_back(id);
  for (const ObjectId id : known) {
    if (random_.Chance(0.5)) Forget(id);
  }
}

// ---- Contents

void VolumeSim::Open() {
  const ObjectId id = AnyObject(&ModelObject::is_file);
  if (id == 0 || open_.size() >= kMostOpen) return;
  Node* const node = NodeOf(id);
  if (node == nullptr) return;
  const int flags =
      O_RDWR | (random_.Chance(0.2) ? O_SYNC : 0) | (random_.Chance(0.2) ? O_TRUNC : 0);
  const Seq before = log_.records.size();
  const auto handle = volume_->open_files().Open(*node, flags);
  const bool truncates = (flags & O_TRUNC) != 0;
  const bool done =
      Judge({.what = absl::StrCat("open ", id, truncates ? " and truncate it" : ""),
             .op = Op::kTruncate,
             .objects = truncates ? std::vector<ObjectId>{id} : std::vector<ObjectId>(),
             .effect =
                 [=](TreeModel& tree) {
                   if (truncates) tree.Truncate(id, 0);
                 },
             .logged = truncates},
            before, handle.status());
  if (handle.ok() && done) open_.push_back({*handle, id});
  if (handle.ok() && !done) volume_->open_files().Release(*handle);
}

void VolumeSim::Close(size_t index) {
  const OpenFile file = open_[index];
  open_.erase(open_.begin() + static_cast<long>(index));
  volume_->open_files().Release(file.handle);
}

void VolumeSim::Write() {
  if (open_.empty()) return Open();
  const OpenFile& file = open_[random_.Below(open_.size())];
  uint64_t offset = random_.Below(kSpan);
  if (lanes_life_ && lanes_random_.Chance(0.4)) offset += kNearSecondPage;
  const std::string data(1 + random_.Below(kMostWritten),
                         static_cast<char>('A' + random_.Below(26)));
  const bool durable = random_.Chance(0.15) || (file.handle->flags & O_SYNC) != 0;
  const ObjectId id = file.id;
  const Seq before = log_.records.size();
  const auto written = volume_->files().Write(*file.handle, offset, data, /*append=*/false,
                                              durable ? Contract::kDurable : Contract::kPlain);
  const bool done =
      Judge({.what = absl::StrCat("write ", data.size(), " bytes to ", id, " at ", offset),
             .op = Op::kWrite,
             .objects = {id},
             .effect = [=](TreeModel& tree) { tree.Write(id, offset, data); },
             .logged = model_.IsNamed(id)},
            before, written.status());
  const bool promised = durable && !ordered_ && !file.handle->early.load();
  if (done && promised && model_.IsNamed(id)) Acknowledge(last_[id], "the write");
}

void VolumeSim::Truncate() {
  const ObjectId id = AnyObject(&ModelObject::is_file);
  Node* const node = id == 0 ? nullptr : NodeOf(id);
  if (node == nullptr) return;
  const uint64_t size = random_.Below(kSpan);
  struct stat want {};
  want.st_size = static_cast<off_t>(size);
  const Seq before = log_.records.size();
  const auto set = volume_->attrs().SetAttr(*node, kSetSize, want);
  Judge({.what = absl::StrCat("truncate ", id, " to ", size),
         .op = Op::kTruncate,
         .objects = {id},
         .effect = [=](TreeModel& tree) { tree.Truncate(id, size); }},
        before, set.status());
}

// ---- Attributes

void VolumeSim::SetAttr() {
  const ObjectId id = AnyObject(&ModelObject::has_attributes);
  Node* const node = id == 0 ? nullptr : NodeOf(id);
  if (node == nullptr) return;
  struct stat want {};
  uint32_t mask = 0;
  std::function<void(ModelObject&)> set;
  const mode_t mode = AnyMode();
  const uid_t owner = kUser + static_cast<uid_t>(random_.Below(3));
  const time_t time = 1'000'000'000 + static_cast<time_t>(random_.Below(1'000'000));
  switch (random_.Below(3)) {
    case 0:
      mask = kSetMode;
      want.st_mode = mode;
      set = [=](ModelObject& object) { object.mode = (object.mode & S_IFMT) | mode; };
      break;
    case 1:
      mask = kSetUid | kSetGid;
      want.st_uid = want.st_gid = owner;
      set = [=](ModelObject& object) { object.uid = object.gid = owner; };
      break;
    default:
      mask = kSetMtime;
      want.st_mtim.tv_sec = time;
      set = [=](ModelObject& object) {
        if (object.is_file()) object.mtime = time;
      };
  }
  const Seq before = log_.records.size();
  Entry after{.node = node};
  const auto changed = volume_->attrs().SetAttr(*node, mask, want, &after.provisional);
  const bool done = Judge({.what = absl::StrCat("set attributes ", mask, " of ", id),
                           .op = Op::kSetAttr,
                           .objects = {id},
                           .effect = [=](TreeModel& tree) { set(tree.at(id)); }},
                          before, changed.status());
  if (!done) return;
  after.attr = *changed;
  CheckEntry(id, after);
}

void VolumeSim::SetXattr() {
  const ObjectId id = AnyObject(&ModelObject::has_attributes);
  Node* const node = id == 0 ? nullptr : NodeOf(id);
  if (node == nullptr) return;
  const std::string name = random_.Chance(0.5) ? "user.one" : "user.two";
  const bool there = model_.at(id).xattrs.contains(name);
  const bool remove = random_.Chance(there ? 0.5 : 0.1);
  const std::string value = absl::StrCat("value ", random_.Below(1000));
  const Seq before = log_.records.size();
  const absl::Status status =
      remove ? volume_->attrs().RemoveXattr(*node, name)
             : volume_->attrs().SetXattr(*node, name, value, 0, /*kill_sgid=*/false);
  Judge({.what = absl::StrCat(remove ? "remove " : "set ", name, " of ", id),
         .op = remove ? Op::kRemoveXattr : Op::kSetXattr,
         .error = remove && !there ? ENODATA : 0,
         .objects = {id},
         .effect =
             [=](TreeModel& tree) {
               if (remove) {
                 tree.at(id).xattrs.erase(name);
               } else {
                 tree.at(id).xattrs[name] = value;
               }
             }},
        before, status);
}

// ---- Syncs

void VolumeSim::Sync(Handle& handle, ObjectId id) {
  const bool failed = Failed();
  absl::StatusOr<Ticket> ticket = volume_->files().StartFsync(handle);
  const absl::Status synced = ticket.ok() ? volume_->files().Await(*ticket) : ticket.status();
  Mix(synced.ok() ? 1 : 2);
  if (trace_)
    trace_(absl::StrCat("fsync ", id, ": ", ErrorName(synced.ok() ? 0 : StatusErrno(synced))));
  if (doom_.dead()) return;
  if (!synced.ok()) {
    if (!disk_error_) Break(absl::StrCat("I1: fsync gives ", ErrorName(StatusErrno(synced))));
    return;
  }
  if (failed && model_.IsNamed(id)) Break("I8: a sync succeeds although the disk has failed");
  if (ordered_ || handle.early.load()) return;  // no promise, or its caller's outputs wait
  if (model_.IsNamed(id) && last_.contains(id)) Acknowledge(last_[id], "fsync");
}

void VolumeSim::Fsync() {
  if (open_.empty()) return;
  const OpenFile& file = open_[random_.Below(open_.size())];
  Sync(*file.handle, file.id);
}

void VolumeSim::FsyncDir() {
  const ObjectId id = AnyDir();
  Node* const node = NodeOf(id);
  if (node == nullptr) return;
  const auto handle = volume_->open_files().OpenDir(*node);
  if (!handle.ok()) return;
  Sync(**handle, id);
  volume_->open_files().Release(*handle);
}

// ---- One call of any kind

void VolumeSim::Act() {
  using Call = void (VolumeSim::*)();
  struct Weighted {
    uint64_t weight;
    Call call;
  };
  static constexpr Weighted kCalls[] = {
      {12, &VolumeSim::Create},      {10, &VolumeSim::MakeOther},   {2, &VolumeSim::MakeTmpFile},
      {6, &VolumeSim::Link},         {10, &VolumeSim::Unlink},      {5, &VolumeSim::RemoveDir},
      {14, &VolumeSim::Rename},      {12, &VolumeSim::Write},       {3, &VolumeSim::Truncate},
      {7, &VolumeSim::SetAttr},      {4, &VolumeSim::SetXattr},     {4, &VolumeSim::Fsync},
      {3, &VolumeSim::FsyncDir},     {3, &VolumeSim::Open},         {6, &VolumeSim::CheckLookup},
      {6, &VolumeSim::CheckListing}, {4, &VolumeSim::CheckContent}, {2, &VolumeSim::CheckXattrs},
      {2, &VolumeSim::BeginListing}, {2, &VolumeSim::ForgetSome},   {2, &VolumeSim::CloseAny},
      {3, &VolumeSim::ContinueAny},
  };
  uint64_t sum = 0;
  for (const Weighted& one : kCalls) sum += one.weight;
  uint64_t drawn = random_.Below(sum);
  for (const Weighted& one : kCalls) {
    if (drawn < one.weight) return (this->*one.call)();
    drawn -= one.weight;
  }
}

void VolumeSim::CloseAny() {
  if (!open_.empty()) Close(random_.Below(open_.size()));
}

}  // namespace salius::sim
