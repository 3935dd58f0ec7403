// A small file system of its own for one test: an image in a loop device, mounted in a temporary
// directory. Needs root.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace salius {

class ScratchFs {
 public:
  // Makes and mounts it. `mkfs` is the command without the image's path ("mkfs.ext4 -q -N 64").
  ScratchFs(uint64_t bytes, const std::string& mkfs, const std::string& mount_options = "");
  ~ScratchFs();
  ScratchFs(const ScratchFs&) = delete;
  ScratchFs& operator=(const ScratchFs&) = delete;

  // Returns false when this kernel cannot mount such a file system.
  static bool Supported(const std::string& mkfs, const std::string& mount_options);

  const std::string& path() const { return path_; }
  // Returns the file's state after a power cut now: mounts a copy of the image.
  struct stat StatAfterPowerCut(const std::string& name) const;
  // Calls EXT4_IOC_SHUTDOWN without flushing the journal: from now on every write-back fails.
  void Shutdown();

  // Calls fsfreeze(8): from then on every change waits until the file system is thawed.
  void Freeze() const;
  void Thaw() const;

 private:
  std::string base_, path_;
};

// Makes the ext4 that is mounted on `path` find an error in itself. With errors=continue it
// continues, and every sync succeeds.
void FindAnErrorIn(const std::string& path);

// Runs a shell command; aborts when it fails.
void MustRun(const std::string& command);

}  // namespace salius
