// Opening and closing of files and directories.
//
// Open files share the descriptors of the process, and a user has a share of them once they are
// numerous (storage/file_fds.h). A closed file has none, although its writes may not be applied
// yet.
//
// Errors: absl::Status with the exact errno in its payload. Threads: any.
#pragma once

#include <sys/types.h>

#include <atomic>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/volume/file_ops.h"
#include "client/volume/health.h"
#include "client/volume/hidden_links.h"
#include "client/volume/node.h"
#include "client/volume/node_fds.h"
#include "storage/backing.h"
#include "storage/file_fds.h"

namespace salius {

class OpenFiles {
 public:
  OpenFiles(Backing& backing, NodeTable& table, FileFds& file_fds, NodeFds& fds, FileOps& files,
            HiddenLinks& links, const Health& health)
      : backing_(backing),
        table_(table),
        file_fds_(file_fds),
        fds_(fds),
        files_(files),
        links_(links),
        health_(health) {}
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  // Returns whether open files are so numerous that each user has a share of the descriptors. Only
  // then `opener`, the user to whom an open counts, matters below.
  bool Many() const { return file_fds_.Crowded(); }
  // Returns ENFILE when open files have as many descriptors as they may. A close that is under way
  // is waited for, for a limited time. To be called before a file is opened for a caller, and
  // before it is made.
  absl::Status CheckRoom(uid_t opener);

  // Opens a regular file. `flags` are open(2)'s; O_SYNC and O_DSYNC make every write of the handle
  // wait. ESTALE when the last name has been removed meanwhile, and nothing had the file open.
  absl::StatusOr<Handle*> Open(Node& node, int flags, uid_t opener = FileFds::kRoot);
  // Opens it after CheckRoom.
  absl::StatusOr<Handle*> OpenChecked(Node& node, int flags, uid_t opener);
  absl::StatusOr<Handle*> OpenDir(Node& node, uid_t opener = FileFds::kRoot);
  // Closes a file or directory.
  void Release(Handle* handle);

  // Changes the options of the same names, also for open files and directories.
  void SetNoAtime(bool noatime, bool nodiratime) {
    file_fds_.SetNoAtime(noatime, noatime || nodiratime);
  }

 private:
  // Returns ENFILE, and logs why once.
  absl::Status NoRoom(uid_t opener);
  // Counts the handle. ESTALE when the file was removed and its data given up.
  absl::Status Add(Handle& handle);
  absl::Status OpenBacking(Handle& handle, uid_t opener);

  Backing& backing_;
  NodeTable& table_;
  FileFds& file_fds_;
  NodeFds& fds_;
  FileOps& files_;
  HiddenLinks& links_;
  const Health& health_;
  std::atomic<bool> logged_no_room_{false};  // it was logged that no descriptor is left
  std::atomic<bool> logged_share_{false};    // it was logged that a user has its share
};

}  // namespace salius
