// The files of a command that has no direct volume, only mounts with commit=external. No file is
// tracked: the daemons of the mounts keep the logs. Constructed by entry.cc.
#pragma once

#include <sys/stat.h>

#include "client/api/ioctl.h"
#include "client/direct/process/files.h"
#include "client/gate/mount_gates.h"
#include "client/preload/look.h"
#include "client/preload/raw_call.h"

namespace salius::preload {

class MountedFiles final : public direct::Files {
 public:
  gate::MountGates& gates() { return gates_; }

  // A change of a mount is in a record before the call returns.
  void Changed() override {}
  bool Owns(int fd) const override { return gates_.Owns(fd); }
  bool IsOfVolume(int fd) const override {
    Seen seen;
    return LookAt(fd, &seen) && gates_.IsMount(seen.device);
  }
  bool IsMount(uint64_t device) const override { return gates_.IsMount(device); }
  void AskEarly(int fd) override {
    const uint32_t on = 1;
    // Refused: its synchronous calls wait.
    if (gates_.Early()) Raw(SYS_ioctl, fd, SALIUS_IOC_EARLY, &on);
  }
  // The kernel then syncs the directory; its handle is asked for each time.
  bool OweDirectory(int fd) override {
    if (IsOfVolume(fd)) AskEarly(fd);
    return false;
  }
  void AfterFork() override { gates_.AfterFork(); }

  // For tracked files; there are none.
  direct::File Open(int, bool) override { return {}; }
  void AwaitRoom(direct::File, size_t) override {}
  void Lock(direct::File) override {}
  void Unlock(direct::File) override {}
  uint64_t LogWrite(direct::File, uint64_t, const iovec*, int, size_t) override { return 0; }
  uint64_t LogTruncate(direct::File, uint64_t) override { return 0; }
  void Uncover(direct::File, direct::Reason) override {}
  int Sync(direct::File, int, bool) override { return 0; }
  int SyncNow(direct::File, int, bool) override { return 0; }
  uint64_t Ticket(direct::File) override { return 0; }
  int AwaitTicket(uint64_t, int64_t) override { return 0; }
  direct::Watermarks Marks() const override { return {}; }
  int SyncAll() override { return 0; }  // the kernel's sync(2) follows

 private:
  gate::MountGates gates_;
};

}  // namespace salius::preload
