#include "tests/sim/volume_model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace salius::sim {

TreeModel::TreeModel() {
  ModelObject root;
  root.mode = S_IFDIR | 0755;
  root.parent = kRoot;
  objects_[kRoot] = root;
}

ObjectId TreeModel::Find(const ModelPlace& place) const {
  const ModelObject& dir = at(place.dir);
  const auto found = dir.names.find(place.name);
  return found == dir.names.end() ? 0 : found->second;
}

uint64_t TreeModel::LinksOf(ObjectId id) const {
  const ModelObject& object = at(id);
  if (!object.is_dir()) return object.links;
  if (!IsNamed(id)) return 0;
  const auto dirs = std::count_if(object.names.begin(), object.names.end(),
                                  [this](const auto& entry) { return at(entry.second).is_dir(); });
  return 2 + static_cast<uint64_t>(dirs);
}

std::vector<std::string> TreeModel::PathOf(ObjectId dir) const {
  std::vector<std::string> path;
  while (dir != kRoot) {
    const ObjectId parent = at(dir).parent;
    for (const auto& [name, id] : at(parent).names) {
      if (id == dir) path.push_back(name);
    }
    dir = parent;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

std::vector<ObjectId> TreeModel::Dirs() const {
  std::vector<ObjectId> dirs;
  for (const auto& [id, object] : objects_) {
    if (object.is_dir() && IsNamed(id)) dirs.push_back(id);
  }
  return dirs;
}

bool TreeModel::IsBelow(ObjectId dir, ObjectId ancestor) const {
  while (dir != ancestor && dir != kRoot) dir = at(dir).parent;
  return dir == ancestor;
}

int TreeModel::LinkError(ObjectId object, const ModelPlace& to) const {
  if (at(object).is_dir()) return EPERM;
  return Find(to) != 0 ? EEXIST : 0;
}

int TreeModel::UnlinkError(const ModelPlace& place) const {
  const ObjectId id = Find(place);
  if (id == 0) return ENOENT;
  return at(id).is_dir() ? EISDIR : 0;
}

int TreeModel::RemoveDirError(const ModelPlace& place) const {
  const ObjectId id = Find(place);
  if (id == 0) return ENOENT;
  if (!at(id).is_dir()) return ENOTDIR;
  return at(id).names.empty() ? 0 : ENOTEMPTY;
}

int TreeModel::RenameError(const ModelPlace& from, const ModelPlace& to, unsigned flags) const {
  const ObjectId id = Find(from);
  const ObjectId other = Find(to);
  const bool exchange = (flags & RENAME_EXCHANGE) != 0;
  if (id == 0) return ENOENT;
  const ModelObject& moved = at(id);
  if (moved.is_dir() && from.dir != to.dir && IsBelow(to.dir, id)) return EINVAL;
  if (other == 0) return exchange ? ENOENT : 0;
  if ((flags & RENAME_NOREPLACE) != 0) return EEXIST;
  const ModelObject& target = at(other);
  if (target.is_dir() && from.dir != to.dir && IsBelow(from.dir, other)) {
    return exchange ? EINVAL : ENOTEMPTY;
  }
  if (exchange || id == other) return 0;
  if (moved.is_dir() != target.is_dir()) return moved.is_dir() ? ENOTDIR : EISDIR;
  return target.names.empty() ? 0 : ENOTEMPTY;
}

void TreeModel::Add(ObjectId id, const ModelObject& object) { objects_[id] = object; }

void TreeModel::Bind(const ModelPlace& place, ObjectId id) {
  at(place.dir).names[place.name] = id;
  ++at(id).links;
  if (at(id).is_dir()) at(id).parent = place.dir;
}

void TreeModel::Unbind(const ModelPlace& place) {
  const auto entry = at(place.dir).names.find(place.name);
  --at(entry->second).links;
  at(place.dir).names.erase(entry);
}

void TreeModel::Link(ObjectId id, const ModelPlace& to) { Bind(to, id); }

void TreeModel::Unlink(const ModelPlace& place) { Unbind(place); }

void TreeModel::Rename(const ModelPlace& from, const ModelPlace& to, unsigned flags,
                       ObjectId whiteout) {
  const ObjectId id = Find(from);
  const ObjectId other = Find(to);
  if (id == other) return;
  Unbind(from);
  if (other != 0) Unbind(to);
  Bind(to, id);
  if ((flags & RENAME_EXCHANGE) != 0) Bind(from, other);
  if (whiteout != 0) Bind(from, whiteout);
}

void TreeModel::Write(ObjectId id, uint64_t offset, std::string_view data) {
  ModelObject& file = at(id);
  if (file.data.size() < offset + data.size()) file.data.resize(offset + data.size(), '\0');
  file.data.replace(offset, data.size(), data);
  file.mtime.reset();
}

void TreeModel::Truncate(ObjectId id, uint64_t size) {
  at(id).data.resize(size, '\0');
  at(id).mtime.reset();
}

void TreeModel::Collect() {
  // A directory goes without its names, which are gone before.
  std::erase_if(objects_, [this](const auto& entry) { return !IsNamed(entry.first); });
}

namespace {

std::string DifferenceOf(const ModelObject& got, const ModelObject& expected) {
  if (got.mode != expected.mode) {
    return absl::StrFormat("has mode %o, not %o", got.mode, expected.mode);
  }
  if (got.uid != expected.uid || got.gid != expected.gid) {
    return absl::StrFormat("is %d:%d's, not %d:%d's", got.uid, got.gid, expected.uid, expected.gid);
  }
  if (got.links != expected.links) {
    return absl::StrFormat("has %d names, not %d", got.links, expected.links);
  }
  if (got.xattrs != expected.xattrs) return "has other extended attributes";
  if (got.data.size() != expected.data.size()) {
    return absl::StrFormat("has %d bytes, not %d", got.data.size(), expected.data.size());
  }
  if (got.data != expected.data) return "has other data";
  if (got.mtime.has_value() && expected.mtime.has_value() && got.mtime != expected.mtime) {
    return "has another time";
  }
  return "";
}

class Comparison {
 public:
  Comparison(const TreeModel& got, const TreeModel& expected) : got_(got), expected_(expected) {}

  std::string Compare(ObjectId got, ObjectId expected, const std::string& path) {
    const auto [pair, fresh] = pairs_.emplace(got, expected);
    if (pair->second != expected) return absl::StrCat(path, " is another object");
    if (!fresh) return "";
    const ModelObject& there = got_.at(got);
    const ModelObject& wanted = expected_.at(expected);
    if (std::string found = DifferenceOf(there, wanted); !found.empty()) {
      return absl::StrCat(path, " ", found);
    }
    for (const auto& [name, id] : wanted.names) {
      if (!there.names.contains(name)) return absl::StrCat(path, "/", name, " is missing");
    }
    for (const auto& [name, id] : there.names) {
      const auto match = wanted.names.find(name);
      if (match == wanted.names.end()) return absl::StrCat(path, "/", name, " is there");
      std::string found = Compare(id, match->second, absl::StrCat(path, "/", name));
      if (!found.empty()) return found;
    }
    return "";
  }

 private:
  const TreeModel& got_;
  const TreeModel& expected_;
  std::map<ObjectId, ObjectId> pairs_;
};

}  // namespace

std::string ErrorName(int error) { return error == 0 ? "success" : strerrorname_np(error); }

std::string Difference(const TreeModel& got, const TreeModel& expected) {
  return Comparison(got, expected).Compare(TreeModel::kRoot, TreeModel::kRoot, "");
}

}  // namespace salius::sim
