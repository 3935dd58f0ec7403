// Finds the files of a direct volume by their ids: one scan of the tree (docs/recovery.md, cases
// R90 to R94).
//
// An id counts only for the inode that it names (storage/direct_id.h). So a copy made with its
// xattrs, and a file in a snapshot below the volume, are not taken for the original.
//
// Threads: not thread safe; the caller holds the volume lock.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "recovery/direct/direct_plan.h"
#include "storage/backing.h"

namespace salius::recovery {

class DirectFiles {
 public:
  // `root_fd` is the volume's directory, open for reading, of `backing`. Both outlive the object.
  DirectFiles(Backing& backing, int root_fd, const VolumeId& volume)
      : backing_(backing), root_fd_(root_fd), volume_(volume) {}

  // Looks for the files of the plan. `on_seen` receives the number of objects looked at. Errors:
  //
  //   DATA_LOSS          two files have one id of the plan
  //   PERMISSION_DENIED  a file of the plan was not found, and a part of the tree cannot be read
  //   others             as the file system gives them
  //
  // With `force` the first two are in problems() instead, and such files count as not found.
  absl::Status Scan(const DirectPlan& plan, bool force,
                    const std::function<void(uint64_t)>& on_seen);

  bool Has(FileId id) const { return found_.contains(id); }
  // Returns the path of a file that was found, relative to the root.
  const std::string& PathOf(FileId id) const { return found_.at(id).path; }
  // Opens a file that was found. ABORTED when another one is at its path now.
  absl::StatusOr<BackingFd> Open(FileId id, int flags) const;
  // Returns the refusals that `force` overrode, a sentence each.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct Place {
    std::string path;
    ino_t inode = 0;
  };

  absl::Status ScanDir(const std::string& path, std::vector<std::string>* more);
  absl::Status Look(const std::string& path, int fd, ino_t inode);
  absl::Status CheckIds(bool force);
  absl::Status CheckUnread(const DirectPlan& plan, bool force);

  Backing& backing_;
  const int root_fd_;
  const VolumeId volume_;
  const DirectPlan* plan_ = nullptr;
  dev_t device_ = 0;
  uint64_t seen_ = 0;
  std::map<FileId, Place> found_;
  std::map<FileId, std::string> twice_;  // path of the second file with the id
  std::vector<std::string> unread_;      // paths that may hide files
  std::vector<std::string> problems_;
};

}  // namespace salius::recovery
