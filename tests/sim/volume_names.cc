// The names that the programs of a simulated volume make, link, rename and remove.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/volume_sim.h"

namespace salius::sim {

void VolumeSim::Create() {
  const ModelPlace place = AnyPlace(0.2);
  Node* const dir = NodeOf(place.dir);
  if (dir == nullptr) return;
  const ObjectId id = next_object_++;
  const ModelObject object = NewObject(S_IFREG | AnyMode());
  const Seq before = log_.records.size();
  const auto made =
      volume_->names().CreateFile(*dir, place.name, O_RDWR | O_EXCL, object.mode & 07777, caller_);
  const bool done = Judge(Making("create", id, object, place), before, made.status());
  if (!made.ok()) return;
  if (!done) {
    volume_->open_files().Release(made->handle);
    volume_->names().Forget(*made->entry.node, 1);
    return;
  }
  Keep(id, made->entry);
  open_.push_back({made->handle, id});
  if (open_.size() > kMostOpen || random_.Chance(0.5)) Close(random_.Below(open_.size()));
}

VolumeSim::Change VolumeSim::Making(const char* what, ObjectId id, const ModelObject& object,
                                    const ModelPlace& place) {
  return {.what = absl::StrCat(what, " ", place.dir, "/", place.name, " = ", id),
          .op = Op::kCreate,
          .error = model_.Find(place) != 0 ? EEXIST : 0,
          .objects = {id, place.dir},
          .places = {place},
          .effect = [=](TreeModel& tree) {
            tree.Add(id, object);
            tree.Link(id, place);
          }};
}

// Makes a directory, a symbolic link, or an empty object.
void VolumeSim::MakeOther() {
  const ModelPlace place = AnyPlace(0.2);
  Node* const dir = NodeOf(place.dir);
  if (dir == nullptr) return;
  const ObjectId id = next_object_++;
  const Seq before = log_.records.size();
  NameOps& names = volume_->names();
  absl::StatusOr<Entry> made;
  ModelObject object;
  switch (random_.Below(8)) {
    case 0:
      object = NewObject(S_IFLNK);
      object.mode = S_IFLNK | 0777;
      object.data = absl::StrCat("target of ", id);
      made = names.Symlink(*dir, place.name, object.data, caller_);
      break;
    case 1:
      object = NewObject(S_IFIFO | AnyMode());
      made = names.MakeNode(*dir, place.name, object.mode, 0, caller_);
      break;
    case 2:
    case 3:
      object = NewObject(S_IFREG | AnyMode());
      made = names.MakeNode(*dir, place.name, object.mode, 0, caller_);
      break;
    default:
      object = NewObject(S_IFDIR | AnyMode());
      made = names.MakeDir(*dir, place.name, object.mode, caller_);
  }
  const bool done = Judge(Making("make", id, object, place), before, made.status());
  if (made.ok() && done) Keep(id, *made);
  if (made.ok() && !done) names.Forget(*made->node, 1);
}

void VolumeSim::MakeTmpFile() {
  const ObjectId dir_id = AnyDir();
  Node* const dir = NodeOf(dir_id);
  if (dir == nullptr) return;
  const ObjectId id = next_object_++;
  const ModelObject object = NewObject(S_IFREG | AnyMode());
  const Seq before = log_.records.size();
  const auto made = volume_->names().CreateTmpFile(*dir, O_RDWR, object.mode & 07777, caller_);
  const bool done = Judge({.what = absl::StrCat("make a file without a name = ", id),
                           .op = Op::kCreate,
                           .objects = {id},
                           .effect = [=](TreeModel& tree) { tree.Add(id, object); }},
                          before, made.status());
  if (!made.ok()) return;
  volume_->names().Forget(*made->entry.node, 1);
  if (done) {
    nameless_.insert(id);
    open_.push_back({made->handle, id});
  } else {
    volume_->open_files().Release(made->handle);
  }
}

// Links a file by one of its names, or an open one.
void VolumeSim::Link() {
  const ModelPlace to = AnyPlace(0.2);
  Node* const dir = NodeOf(to.dir);
  ObjectId id = AnyObject(nullptr);
  Node* node = nullptr;
  if (dir == nullptr) return;
  if (!open_.empty() && random_.Chance(0.4)) {
    const OpenFile& file = open_[random_.Below(open_.size())];
    id = file.id;
    node = &file.handle->node;
  } else {
    node = NodeOf(id);
  }
  if (node == nullptr) return;
  const Seq before = log_.records.size();
  const auto linked = volume_->names().Link(*node, *dir, to.name);
  int error = model_.LinkError(id, to);
  // A file whose last name was removed gets no other. One that was made without a name does while
  // it is open, because of its hidden link; on ext4 only until its first name is gone.
  if (error == 0 && removed_.contains(id) && !nameless_.contains(id)) error = ENOENT;
  const bool done = Judge({.what = absl::StrCat("link ", id, " to ", to.dir, "/", to.name),
                           .op = Op::kLink,
                           .error = error,
                           .objects = {id, to.dir},
                           .places = {to},
                           .effect = [=](TreeModel& tree) { tree.Link(id, to); }},
                          before, linked.status());
  if (linked.ok() && done) Keep(id, *linked);
  if (linked.ok() && !done) volume_->names().Forget(*linked->node, 1);
}

void VolumeSim::Unlink() {
  const ModelPlace place = AnyPlace(0.9);
  Node* const dir = NodeOf(place.dir);
  if (dir == nullptr) return;
  const Seq before = log_.records.size();
  const absl::Status status = volume_->names().Unlink(*dir, place.name);
  Judge({.what = absl::StrCat("unlink ", place.dir, "/", place.name),
         .op = Op::kUnlink,
         .error = model_.UnlinkError(place),
         .objects = {model_.Find(place), place.dir},
         .places = {place},
         .effect = [=](TreeModel& tree) { tree.Unlink(place); }},
        before, status);
}

void VolumeSim::RemoveDir() {
  const ModelPlace place = AnyPlace(0.9);
  Node* const dir = NodeOf(place.dir);
  if (dir == nullptr) return;
  const Seq before = log_.records.size();
  const absl::Status status = volume_->names().RemoveDir(*dir, place.name);
  Judge({.what = absl::StrCat("rmdir ", place.dir, "/", place.name),
         .op = Op::kUnlink,
         .error = model_.RemoveDirError(place),
         .objects = {model_.Find(place), place.dir},
         .places = {place},
         .effect = [=](TreeModel& tree) { tree.Unlink(place); }},
        before, status);
}

void VolumeSim::Rename() {
  constexpr unsigned kFlags[] = {0, 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT};
  const ModelPlace from = AnyPlace(0.9);
  const ModelPlace to = AnyPlace(0.5);
  const unsigned flags = kFlags[random_.Below(std::size(kFlags))];
  Node* const from_dir = NodeOf(from.dir);
  Node* const to_dir = from_dir == nullptr ? nullptr : NodeOf(to.dir);
  if (to_dir == nullptr) return;
  const ObjectId id = model_.Find(from);
  const ObjectId other = model_.Find(to);
  const ObjectId whiteout = flags == RENAME_WHITEOUT ? next_object_++ : 0;
  const ModelObject left = NewObject(S_IFCHR);
  const Seq before = log_.records.size();
  const absl::Status status =
      volume_->names().Rename(*from_dir, from.name, *to_dir, to.name, flags, caller_);
  Change change{.what = absl::StrCat("rename ", from.dir, "/", from.name, " to ", to.dir, "/",
                                     to.name, ", flags ", flags),
                .op = Op::kRename,
                .error = model_.RenameError(from, to, flags),
                .objects = {id, from.dir, to.dir},
                .places = {from, to},
                .effect =
                    [=](TreeModel& tree) {
                      if (tree.Find(from) == tree.Find(to)) return;
                      if (whiteout != 0) tree.Add(whiteout, left);
                      tree.Rename(from, to, flags, whiteout);
                    },
                .logged = id != other};
  if (other != 0) change.objects.push_back(other);
  if (id == other) change.objects.clear();
  Judge(change, before, status);
}

}  // namespace salius::sim
