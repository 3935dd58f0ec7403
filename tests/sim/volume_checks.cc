// The results of look-ups, listings and reads in a simulated volume, compared with the model.
#include <errno.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/file.h"
#include "tests/sim/volume_sim.h"

namespace salius::sim {
namespace {

constexpr size_t kMostListings = 2;
constexpr size_t kPlenty = 8192;  // no file has more

}  // namespace

void VolumeSim::CheckEntry(ObjectId id, const Entry& entry) {
  if (!Alive() || disk_error_) return;
  const ModelObject& object = model_.at(id);
  const struct stat& st = entry.attr;
  const auto [known, fresh] = inodes_.emplace(id, st.st_ino);
  const uint64_t links = model_.LinksOf(id) + (id == TreeModel::kRoot ? 1 : 0);  // .salius
  const auto check = [&](bool right, const char* what, uint64_t got, uint64_t wanted) {
    if (!right) Break(absl::StrCat("I2: ", what, " of an object is ", got, ", not ", wanted));
  };
  check(known->second == st.st_ino, "st_ino", st.st_ino, known->second);
  check(st.st_mode == object.mode, "st_mode", st.st_mode, object.mode);
  check(st.st_uid == object.uid, "st_uid", st.st_uid, object.uid);
  check(st.st_gid == object.gid, "st_gid", st.st_gid, object.gid);
  check(st.st_nlink == links, "st_nlink", st.st_nlink, links);
  if (object.is_dir()) return;
  check(static_cast<uint64_t>(st.st_size) == object.data.size(), "st_size",
        static_cast<uint64_t>(st.st_size), object.data.size());
  if (!object.mtime.has_value() || entry.provisional) return;
  check(st.st_mtim.tv_sec == *object.mtime, "st_mtime", static_cast<uint64_t>(st.st_mtim.tv_sec),
        static_cast<uint64_t>(*object.mtime));
}

void VolumeSim::CheckLookup() {
  const ModelPlace place = AnyPlace(0.6);
  Node* const dir = NodeOf(place.dir);
  if (dir == nullptr) return;
  const auto entry = volume_->names().Lookup(*dir, place.name);
  if (!Alive() || disk_error_) {
    if (entry.ok()) volume_->names().Forget(*entry->node, 1);
    return;
  }
  const ObjectId id = model_.Find(place);
  const int got = entry.ok() ? 0 : StatusErrno(entry.status());
  if (got != (id == 0 ? ENOENT : 0)) {
    Break(absl::StrCat("I2: look-up of ", place.dir, "/", place.name, " gives ", ErrorName(got)));
    if (entry.ok()) volume_->names().Forget(*entry->node, 1);
    return;
  }
  if (id != 0) Keep(id, *entry);
}

// Lists a directory, with the attributes of some entries.
void VolumeSim::CheckListing() {
  const ObjectId id = AnyDir();
  Node* const dir = NodeOf(id);
  if (dir == nullptr) return;
  const auto handle = volume_->open_files().OpenDir(*dir);
  if (!handle.ok()) return;
  std::vector<DirEntry> entries;
  const absl::Status listed = volume_->names().ReadDir(**handle, 0, [&](const DirEntry& entry) {
    if (entry.name != "." && entry.name != "..") entries.push_back(entry);
    return true;
  });
  volume_->open_files().Release(*handle);
  const auto& names = model_.at(id).names;
  if (!listed.ok() || entries.size() != names.size()) {
    return Break(absl::StrCat("I2: a listing of ", id, " has ", entries.size(), " names, not ",
                              names.size()));
  }
  for (const DirEntry& entry : entries) {
    const auto there = names.find(entry.name);
    if (there == names.end()) return Break(absl::StrCat("I2: a listing shows ", entry.name));
    const ModelObject& object = model_.at(there->second);
    const auto known = inodes_.find(there->second);
    if (entry.type != (object.mode & S_IFMT) ||
        (known != inodes_.end() && known->second != entry.ino)) {
      return Break(absl::StrCat("I2: a listing shows another object at ", entry.name));
    }
    if (!random_.Chance(0.3)) continue;
    const auto found =
        volume_->names().LookupListed(*dir, entry.name, entry.ino, random_.Chance(0.5));
    if (found.ok() && Alive()) {
      Keep(there->second, *found);
    } else if (found.ok()) {
      volume_->names().Forget(*found->node, 1);
    } else if (Alive() && !disk_error_) {
      Break(absl::StrCat("I2: a listed name gives ", ErrorName(StatusErrno(found.status()))));
    }
    if (!Alive()) return;
  }
}

void VolumeSim::CheckContent() {
  if (open_.empty()) return;
  const OpenFile& file = open_[random_.Below(open_.size())];
  std::string data;
  const absl::Status read = volume_->files().Read(*file.handle, 0, kPlenty, &data);
  if (!Alive() || disk_error_) return;
  if (!read.ok() || data != model_.at(file.id).data) {
    Break(absl::StrCat("I2: file ", file.id, " is read otherwise than it was written"));
  }
}

void VolumeSim::CheckXattrs() {
  const ObjectId id = AnyObject(&ModelObject::has_attributes);
  Node* const node = id == 0 ? nullptr : NodeOf(id);
  if (node == nullptr) return;
  const auto names = volume_->attrs().ListXattr(*node);
  std::map<std::string, std::string> found;
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    const auto value = volume_->attrs().GetXattr(*node, name);
    if (value.ok()) found[name] = *value;
  }
  if (!Alive() || disk_error_) return;
  if (found != model_.at(id).xattrs) {
    Break(absl::StrCat("I2: object ", id, " has other extended attributes than were set"));
  }
}

void VolumeSim::BeginListing() {
  const ObjectId id = AnyDir();
  Node* const node = NodeOf(id);
  if (node == nullptr || listings_.size() >= kMostListings) return;
  const auto handle = volume_->open_files().OpenDir(*node);
  if (!handle.ok()) return;
  Listing listing{.handle = *handle, .dir = id};
  for (const auto& [name, there] : model_.at(id).names) listing.begun.insert(name);
  listings_.push_back(std::move(listing));
  ContinueListing(listings_.size() - 1);
}

// Takes a few more entries. At the end, each name that was there all the time was shown once, and
// no name that never was.
void VolumeSim::ContinueListing(size_t index) {
  Listing& listing = listings_[index];
  size_t more = 1 + random_.Below(3);
  bool ended = true;
  const absl::Status listed =
      volume_->names().ReadDir(*listing.handle, listing.offset, [&](const DirEntry& entry) {
        if (more-- == 0) {
          ended = false;
          return false;
        }
        listing.offset = entry.next_offset;
        if (entry.name != "." && entry.name != "..") listing.seen.insert(entry.name);
        return true;
      });
  if (listed.ok() && !ended) return;
  for (const std::string& name : listing.begun) {
    if (listing.changed.contains(name) || listing.seen.count(name) == 1 || !listed.ok()) continue;
    Break(absl::StrCat("I2: a listing shows ", name, " ", listing.seen.count(name), " times"));
  }
  for (const std::string& name : listing.seen) {
    if (listing.begun.contains(name) || listing.changed.contains(name)) continue;
    Break(absl::StrCat("I2: a listing shows ", name, ", which never was there"));
  }
  volume_->open_files().Release(listing.handle);
  listings_.erase(listings_.begin() + static_cast<long>(index));
}

void VolumeSim::ContinueAny() {
  if (!listings_.empty()) ContinueListing(random_.Below(listings_.size()));
}

}  // namespace salius::sim
