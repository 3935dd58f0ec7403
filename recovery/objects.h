// Where the objects of a replay plan are on the backing file system. An object is kept as a file
// handle, so that it is found again wherever it is moved meanwhile and no descriptor is held.
// (Where the file system has no handles, a descriptor is held after all.)
//
// How an id is found, in this order: an adopt record's handle, then its path (the object is given
// the id there, nowhere else); the touched names of directories that are found; .salius/open and
// .salius/tmp; and if something needed is still missing, one scan of the tree that reads every id
// and stops when all are found. Nothing but an adopted object's id is ever written here.
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
#include "recovery/replay_plan.h"

namespace salius::recovery {

// One object: its handle, or where the file system has no handles (overlayfs) a descriptor of it.
struct ObjectRef {
  FileHandle handle;
  UniqueFd fd;        // O_PATH; only without a handle
  uint32_t type = 0;  // S_IFMT
};

class Objects {
 public:
  // `root_fd` and `salius_fd` are the volume's directories (not O_PATH) and are borrowed.
  Objects(int root_fd, int salius_fd) : root_fd_(root_fd), salius_fd_(salius_fd) {}

  // Finds what can be found of `plan`. `on_scanned` is told, now and then, how many objects the
  // scan has seen. An object that is not there is no error: Has() says so. With `give_ids` false
  // adopted objects are found but not written to.
  absl::Status Locate(const ReplayPlan& plan, bool give_ids,
                      const std::function<void(uint64_t)>& on_scanned);
  // The tree had to be scanned.
  bool scanned() const { return scanned_; }

  // True for the root and everything located or put.
  bool Has(FileId id) const { return id == kRootFileId || found_.contains(id); }
  // File type bits (S_IFMT). The object must be there.
  uint32_t TypeOf(FileId id) const;
  // Opens the object with open(2) flags (O_PATH allowed). NOT_FOUND when it is not there (any
  // more).
  absl::StatusOr<UniqueFd> Open(FileId id, int flags) const;
  // Remembers that the object open at `fd` is `id`.
  absl::Status Put(FileId id, int fd);

 private:
  absl::Status LocateAdopted(const ReplayPlan& plan, bool give_ids);
  // The adopted object: what the handle names, else what the path names when that has its id or
  // none. NOT_FOUND otherwise.
  absl::StatusOr<UniqueFd> OpenAdopted(const ObjectPlan& object, const AdoptBody& adopt) const;
  absl::Status LocateHidden(const ReplayPlan& plan);
  absl::Status LocateByNames(const ReplayPlan& plan);
  absl::Status NamesOf(const ReplayPlan& plan, FileId dir);
  absl::Status Scan(const ReplayPlan& plan, const std::function<void(uint64_t)>& on_scanned);
  absl::Status ScanDir(const ObjectRef& dir, std::vector<ObjectRef>* more,
                       absl::flat_hash_set<FileId>* missing, uint64_t* seen);
  absl::StatusOr<ObjectRef> RefOf(int fd) const;
  absl::StatusOr<UniqueFd> OpenRef(const ObjectRef& ref, int flags) const;
  absl::flat_hash_set<FileId> Missing(const ReplayPlan& plan) const;

  const int root_fd_;
  const int salius_fd_;
  absl::flat_hash_map<FileId, ObjectRef> found_;
  std::vector<FileId> new_dirs_;  // located, their touched names not yet looked at
  bool scanned_ = false;
};

// The object's id at `name` in `dirfd`: nullopt when the name does not exist, kNoFileId when the
// object has no id.
struct Occupant {
  bool exists = false;
  FileId id = kNoFileId;
  bool directory = false;
};
absl::StatusOr<Occupant> OccupantAt(int dirfd, const std::string& name);

}  // namespace salius::recovery
