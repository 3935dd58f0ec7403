// A model of the tree of a volume as its users know it, for the volume simulator: names, contents,
// attributes, link counts, and the error of each operation on names. It has no records and no disk.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace salius::sim {

// The number of an object in the model. It is not the volume's file id.
using ObjectId = uint64_t;

// A name in a directory.
struct ModelPlace {
  ObjectId dir = 0;
  std::string name;
};

struct ModelObject {
  mode_t mode = 0;  // with S_IFMT
  uid_t uid = 0;
  gid_t gid = 0;
  std::string data;  // a file's content, or a symbolic link's target
  std::map<std::string, std::string> xattrs;
  std::optional<time_t> mtime;            // a file's, while nothing changed it since it was set
  std::map<std::string, ObjectId> names;  // a directory's
  ObjectId parent = 0;                    // a directory's
  uint64_t links = 0;                     // names that lead to it

  bool is_dir() const { return S_ISDIR(mode); }
  bool is_file() const { return S_ISREG(mode); }
  bool has_attributes() const { return is_file() || is_dir(); }  // that programs change
};

class TreeModel {
 public:
  static constexpr ObjectId kRoot = 1;

  TreeModel();

  const std::map<ObjectId, ModelObject>& objects() const { return objects_; }
  const ModelObject& at(ObjectId id) const { return objects_.at(id); }
  ModelObject& at(ObjectId id) { return objects_.at(id); }
  bool Has(ObjectId id) const { return objects_.contains(id); }
  // Returns the object under a name; 0 when there is none.
  ObjectId Find(const ModelPlace& place) const;
  bool IsNamed(ObjectId id) const { return id == kRoot || at(id).links > 0; }
  // Returns st_nlink as a caller sees it.
  uint64_t LinksOf(ObjectId id) const;
  // Returns the names on the way from the root to a named directory.
  std::vector<std::string> PathOf(ObjectId dir) const;
  // Returns the directories that have a name, and the root.
  std::vector<ObjectId> Dirs() const;

  // ---- errors that the operations give: an errno, or 0
  int LinkError(ObjectId object, const ModelPlace& to) const;
  int UnlinkError(const ModelPlace& place) const;
  int RemoveDirError(const ModelPlace& place) const;
  // `flags`: as of renameat2(2).
  int RenameError(const ModelPlace& from, const ModelPlace& to, unsigned flags) const;

  // ---- changes. Without an error they succeed.
  void Add(ObjectId id, const ModelObject& object);
  void Link(ObjectId id, const ModelPlace& to);
  void Unlink(const ModelPlace& place);
  // `whiteout`: the object that stays at `from`; 0: none.
  void Rename(const ModelPlace& from, const ModelPlace& to, unsigned flags, ObjectId whiteout);
  void Write(ObjectId id, uint64_t offset, std::string_view data);
  void Truncate(ObjectId id, uint64_t size);
  // Forgets the objects without a name.
  void Collect();

 private:
  bool IsBelow(ObjectId dir, ObjectId ancestor) const;
  void Bind(const ModelPlace& place, ObjectId id);
  void Unbind(const ModelPlace& place);

  std::map<ObjectId, ModelObject> objects_;
};

// Returns the name of an errno; of 0 "success".
std::string ErrorName(int error);

// Returns the first difference between two trees, for people; "" when there is none. The numbers of
// objects may differ; objects with two names must be the same pairs. A time counts when both know it.
std::string Difference(const TreeModel& got, const TreeModel& expected);

}  // namespace salius::sim
