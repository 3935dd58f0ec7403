// The objects of a replay plan on the backing file system. An object is kept as a file handle, so
// that it is found again wherever it is moved meanwhile and no descriptor is held. (Where the file
// system has no handles, a descriptor is held.)
//
// An id is searched in this order:
//   1. an adopt record's handle, then its path (only there the object is given the id)
//   2. the touched names of directories that are found
//   3. .salius/open and .salius/tmp
//   4. if a needed object is still missing, one scan of the tree, which reads every id and stops
//      when all are found
// The only thing ever written here is an adopted object's id.
//
// Threads: not thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"
#include "common/ids.h"
#include "recovery/replay/replay_plan.h"
#include "storage/backing.h"

namespace salius::recovery {

// One object: its handle, or a descriptor where the file system has no handles (overlayfs).
struct ObjectRef {
  FileHandle handle;
  BackingFd fd;       // O_PATH; only without a handle
  uint32_t type = 0;  // S_IFMT
};

class Objects {
 public:
  // `root_fd` and `salius_fd` are the volume's directories (not O_PATH) in `backing`. All three are
  // borrowed.
  Objects(Backing& backing, int root_fd, int salius_fd)
      : backing_(backing), root_fd_(root_fd), salius_fd_(salius_fd) {}

  // Finds the objects of `plan`. An object that is not there is no error: Has() returns false.
  // `on_scanned` receives from time to time the number of objects that the scan has seen. With
  // `give_ids` false adopted objects are found but not written to.
  absl::Status Locate(const ReplayPlan& plan, bool give_ids,
                      const std::function<void(uint64_t)>& on_scanned);
  // Whether the tree had to be scanned.
  bool scanned() const { return scanned_; }

  // Whether the object is the root, or was located or put.
  bool Has(FileId id) const { return id == kRootFileId || found_.contains(id); }
  // Returns the file type bits (S_IFMT). The object must be there.
  uint32_t TypeOf(FileId id) const;
  // Opens the object with open(2) flags (O_PATH allowed). NOT_FOUND when it is not there (any
  // more).
  absl::StatusOr<BackingFd> Open(FileId id, int flags) const;
  // Remembers that the object open at `fd` is `id`.
  absl::Status Put(FileId id, int fd);

 private:
  absl::Status LocateAdopted(const ReplayPlan& plan, bool give_ids);
  // Opens the adopted object: the one of the handle, else the one at the path when that has its id
  // or none. NOT_FOUND otherwise.
  absl::StatusOr<BackingFd> OpenAdopted(const ObjectPlan& object, const AdoptBody& adopt) const;
  absl::Status LocateHidden(const ReplayPlan& plan);
  absl::Status LocateByNames(const ReplayPlan& plan);
  absl::Status NamesOf(const ReplayPlan& plan, FileId dir);
  absl::Status Scan(const ReplayPlan& plan, const std::function<void(uint64_t)>& on_scanned);
  absl::Status ScanDir(const ObjectRef& dir, std::vector<ObjectRef>* more,
                       absl::flat_hash_set<FileId>* missing, uint64_t* seen);
  absl::StatusOr<ObjectRef> RefOf(int fd) const;
  absl::StatusOr<BackingFd> OpenRef(const ObjectRef& ref, int flags) const;
  absl::flat_hash_set<FileId> Missing(const ReplayPlan& plan) const;

  Backing& backing_;
  const int root_fd_;
  const int salius_fd_;
  absl::flat_hash_map<FileId, ObjectRef> found_;
  std::vector<FileId> new_dirs_;  // located; their touched names are not read yet
  bool scanned_ = false;
};

// The object at a name. Without an id it has kNoFileId.
struct Occupant {
  bool exists = false;
  FileId id = kNoFileId;
  bool directory = false;
  bool whiteout = false;  // a character device 0:0
};
absl::StatusOr<Occupant> OccupantAt(Backing& backing, int dirfd, const std::string& name);

}  // namespace salius::recovery
