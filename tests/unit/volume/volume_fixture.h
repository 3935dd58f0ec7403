// A volume on a file system of its own, and short forms of the calls that tests make.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <memory>
#include <string>

#include "client/volume/contract.h"
#include "client/volume/node.h"
#include "client/volume/volume.h"
#include "common/check.h"
#include "common/file.h"
#include "gtest/gtest.h"
#include "tests/unit/volume/scratch_fs.h"

namespace salius {

// Returns whether the test program was started with --fake (main.cc).
bool& FakeStreamByDefault();

class VolumeFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = uint64_t{1} << 20;

  // Makes the file system and the volume and opens it.
  void Make(uint64_t bytes = 256 * kMiB, const std::string& mkfs = "mkfs.ext4 -q -b 4096 -m 0",
            const std::string& mount_options = "");
  // Makes only the file system and the volume.
  void MakeClosed(uint64_t bytes = 256 * kMiB,
                  const std::string& mkfs = "mkfs.ext4 -q -b 4096 -m 0",
                  const std::string& mount_options = "");
  void Open();
  void Close();  // cleanly
  void TearDown() override;

  Node& root() { return volume->root(); }
  Node& Find(const std::string& name) { return Find(root(), name); }
  Node& Find(Node& dir, const std::string& name);
  Node& Dir(Node& parent, const std::string& name);
  Handle* Create(const std::string& name, int flags = O_RDWR) {
    return Create(root(), name, flags);
  }
  Handle* Create(Node& dir, const std::string& name, int flags = O_RDWR);
  Handle* OpenFile(Node& node, int flags = O_RDWR);
  void Write(Handle* handle, uint64_t offset, const std::string& data,
             Contract contract = Contract::kPlain);
  // Syncs the file or directory and waits.
  absl::Status Fsync(Handle* handle);
  std::string Read(Handle* handle, uint64_t offset, size_t size);
  struct stat Stat(Node& node);
  std::string Backing(const std::string& name) const;  // path on the backing file system
  std::string BackingContent(const std::string& name) const;

  std::unique_ptr<ScratchFs> scratch;
  VolumeConfig config;
  bool noatime = false;  // for Open()
  // For Open(): a FakeStream, else the real pipeline in mode local. Set by --fake.
  bool fake_stream = FakeStreamByDefault();
  std::unique_ptr<Volume> volume;
  Caller caller{.uid = 1000, .gid = 1000, .umask = 022};
};

// Returns the errno of a call; 0 for success.
template <typename T>
int Errno(const absl::StatusOr<T>& result) {
  return StatusErrno(result.status());
}
inline int Errno(const absl::Status& status) { return StatusErrno(status); }

}  // namespace salius
