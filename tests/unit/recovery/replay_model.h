// A model file tree with random histories, and a disk that performs any subset of them. The replay
// tests compare with it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/file.h"
#include "common/random.h"
#include "tests/unit/recovery/test_util.h"

namespace salius::recovery {

struct ModelObject {
  FileId id = kNoFileId;
  uint32_t type = 0;  // S_IFMT
  uint32_t mode = 0;
  std::string content;                     // files
  std::map<std::string, FileId> children;  // directories
  bool identified = false;                 // has its id on the disk, or a record gives it
  bool old = false;                        // was there at the checkpoint
  int links = 0;
};

// The tree as `path -> description`, for comparison.
using Listing = std::map<std::string, std::string>;

// Lists everything below `root_path` except .salius.
Listing ListDisk(const std::string& root_path);

class Model {
 public:
  // Starts with the root alone.
  explicit Model(uint64_t seed);

  // Makes a random tree, on the disk below `root_path` as well.
  void MakeOldTree(const std::string& root_path);
  // Stamps `count` random operations, applying each to the model.
  void Run(int count);

  const Stamper& stamper() const { return stamper_; }
  Random& random() { return random_; }
  Listing List() const;
  const std::map<FileId, ModelObject>& objects() const { return objects_; }
  const std::map<FileId, FileHandle>& handles() const { return handles_; }
  // Whether T leaves a name to the object.
  bool Alive(FileId id) const { return objects_.at(id).links > 0 || id == kRootFileId; }

 private:
  struct Place {
    FileId dir = kNoFileId;
    std::string name;
  };

  ModelObject& Add(uint32_t type, uint32_t mode);
  void Bind(FileId dir, const std::string& name, FileId id);
  void Unbind(FileId dir, const std::string& name);
  void Ensure(FileId id);
  FileId RandomDir();
  FileId RandomFile();
  // Chooses a random bound name; returns false when there is none.
  bool RandomPlace(Place* place);
  std::string RandomName();
  std::string FreeName(FileId dir);
  bool IsBelow(FileId dir, FileId ancestor) const;

  void Create();
  void CreateNameless();
  void Link();
  // Whether the record that takes the file's name says that it has no other.
  bool SaysOnly(FileId id);
  void Remove();
  void Rename();
  void Exchange();
  void Data();
  void Chmod();
  void CancelledRename();
  void ListBelow(FileId dir, const std::string& prefix, Listing* out) const;

  Random random_;
  Stamper stamper_{1};
  std::map<FileId, ModelObject> objects_;
  std::map<FileId, FileHandle> handles_;  // of old objects
  FileId next_id_ = 100;
};

// The disk: performs single records, and leaves out those that cannot be done.
class Disk {
 public:
  Disk(const std::string& root_path, const Model& model);
  // Performs the record if that is possible and does not take the last name of an old object that T
  // keeps.
  void Perform(const RecordView& record);

 private:
  // Returns -1 when the object is not on the disk.
  int FdOf(FileId id) const;
  FileId IdAt(int dirfd, const std::string& name) const;
  bool MayLoseName(FileId id) const;

  const Model& model_;
  UniqueFd root_, tmp_, open_;
  std::map<FileId, UniqueFd> fds_;
};

}  // namespace salius::recovery
