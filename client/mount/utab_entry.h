// Keeps the entry in /run/mount/utab from which umount(8) learns that a volume is unmounted by its
// helper (mount_calls.h), as long as the volume is served.
//
// Mount namespaces share that file. An `umount` in one of them, of its own copy of the mount,
// removes the entry for all. Then `umount` would return here before the volume is drained. So the
// file is watched, and the entry is restored.
//
// Threads: one of its own, from the constructor to the end of the destructor.
#pragma once

#include <string>
#include <thread>

#include "common/file.h"

namespace salius {

class UtabEntry {
 public:
  // Makes the entry and keeps it. If that fails, or the file cannot be watched, it logs and keeps
  // nothing.
  UtabEntry(std::string source, std::string mountpoint);
  // Removes the entry.
  ~UtabEntry();
  UtabEntry(const UtabEntry&) = delete;
  UtabEntry& operator=(const UtabEntry&) = delete;

 private:
  bool Watch();
  void Keep();
  // Waits. Returns true when the file may have changed, false when the watch has ended.
  bool AwaitChange();
  bool IsThere() const;
  void Restore() const;

  const std::string source_;
  const std::string mountpoint_;
  UniqueFd inotify_;
  UniqueFd stop_;  // eventfd(2)
  std::thread keeper_;
};

}  // namespace salius
