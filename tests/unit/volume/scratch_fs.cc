#include "tests/unit/volume/scratch_fs.h"

#include <fcntl.h>
#include <linux/ioctl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "common/check.h"

namespace salius {

void MustRun(const std::string& command) {
  const int result = system(command.c_str());
  SALIUS_CHECK(result == 0) << command;
}

void FindAnErrorIn(const std::string& path) {
  // It is counted a moment after it is found.
  MustRun("d=/sys/fs/ext4/$(basename $(findmnt -no SOURCE " + path +
          ")); n=$(cat $d/errors_count); echo test > $d/trigger_fs_error; "
          "timeout 20 sh -c \"until [ \\$(cat $d/errors_count) -gt $n ]; do sleep 0.01; done\"");
}

ScratchFs::ScratchFs(uint64_t bytes, const std::string& mkfs, const std::string& mount_options) {
  const char* const tmp = getenv("TEST_TMPDIR");
  base_ = std::string(tmp != nullptr ? tmp : "/tmp") + "/scratch.XXXXXX";
  SALIUS_CHECK(mkdtemp(base_.data()) != nullptr);
  path_ = base_ + "/mnt";
  const std::string image = base_ + "/image";
  MustRun("mkdir " + path_ + " && truncate -s " + std::to_string(bytes) + " " + image + " && " +
          mkfs + " " + image + " && mount -o loop" +
          (mount_options.empty() ? "" : "," + mount_options) + " " + image + " " + path_);
}

bool ScratchFs::Supported(const std::string& mkfs, const std::string& mount_options) {
  const std::string script = "d=$(mktemp -d) && mkdir $d/m && truncate -s 320M $d/i && " + mkfs +
                             " $d/i && mount -o loop," + mount_options +
                             " $d/i $d/m && umount $d/m; r=$?; rm -rf $d; exit $r";
  return system(("(" + script + ") >/dev/null 2>&1").c_str()) == 0;
}

ScratchFs::~ScratchFs() {
  // Detaches: a failed test may still have files open.
  SALIUS_CHECK(umount2(path_.c_str(), MNT_DETACH) == 0);
  MustRun("rm -rf --one-file-system " + base_);
}

struct stat ScratchFs::StatAfterPowerCut(const std::string& name) const {
  const std::string copy = base_ + "/copy", mounted = base_ + "/copied";
  MustRun("mkdir -p " + mounted + " && cp --sparse=always " + base_ + "/image " + copy +
          " && mount -o loop " + copy + " " + mounted);
  struct stat st {};
  const int found = stat((mounted + "/" + name).c_str(), &st);
  SALIUS_CHECK(umount2(mounted.c_str(), 0) == 0);
  SALIUS_CHECK(found == 0) << name;
  return st;
}

void ScratchFs::Freeze() const { MustRun("fsfreeze -f " + path_); }

void ScratchFs::Thaw() const { MustRun("fsfreeze -u " + path_); }

void ScratchFs::Shutdown() {
  const int fd = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  SALIUS_CHECK(fd >= 0);
  const uint32_t no_log_flush = 2;
  SALIUS_CHECK(ioctl(fd, _IOR('X', 125, uint32_t), &no_log_flush) == 0);
  close(fd);
}

}  // namespace salius
