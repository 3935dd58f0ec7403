// Keeps the note for umount(8) that a volume is unmounted by its helper (mount_calls.h), as long as
// the volume is served.
//
// The note is in /run/mount/utab, which mount namespaces share. An `umount` in one of them, of its
// own copy of the mount, removes it for all. Then `umount` would return here before the volume is
// drained. So the file is watched, and the note is put back.
//
// Threads: one of its own, from the constructor to the end of the destructor.
#pragma once

#include <string>
#include <thread>

#include "common/file.h"

namespace salius {

class UmountNote {
 public:
  // Makes the note and keeps it. If that fails, or the file cannot be watched, it logs and keeps
  // nothing.
  UmountNote(std::string source, std::string mountpoint);
  // Removes the note.
  ~UmountNote();
  UmountNote(const UmountNote&) = delete;
  UmountNote& operator=(const UmountNote&) = delete;

 private:
  bool Watch();
  void Keep();
  // Waits. Returns true when the file may have changed, false when the watch has ended.
  bool AwaitChange();
  bool IsThere() const;
  void PutBack() const;

  const std::string source_;
  const std::string mountpoint_;
  UniqueFd inotify_;
  UniqueFd stop_;  // eventfd(2)
  std::thread keeper_;
};

}  // namespace salius
