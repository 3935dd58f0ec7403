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
  bool IsOutside(int fd) const override {
    Seen seen;
    return LookAt(fd, &seen) && !gates_.IsMount(seen.device);
  }
  bool IsMount(uint64_t device) const override { return gates_.IsMount(device); }
  uint64_t AskEarly(int fd) override {
    Seen seen;
    // Refused: its synchronous calls wait.
    if (!gates_.Early() || !LookAt(fd, &seen)) return 0;
    const uint32_t mapped = gates_.Mapped(seen.device);  // before the daemon looks
    const uint32_t on = 1;
    if (Raw(SYS_ioctl, fd, SALIUS_IOC_EARLY, &on) != 0 || mapped == 0) return 0;
    return GrantOf(seen.inode, mapped);
  }
  // The daemon would have nothing to do but answer: what the file shows is in records already, and
  // the gates wait for these. It has not told of a shared map since it granted this.
  bool SyncsEarly(int fd, uint64_t grant) const override {
    Seen seen;
    if (grant == 0 || !gates_.Early() || !LookAt(fd, &seen)) return false;
    const uint32_t mapped = gates_.Mapped(seen.device);
    return mapped != 0 && grant == GrantOf(seen.inode, mapped) && gates_.Registered(seen.device);
  }
  // A directory has no shared maps, and needs no grant.
  bool OweDirectory(int fd) override {
    Seen seen;
    if (!LookAt(fd, &seen) || !S_ISDIR(seen.mode) || !gates_.IsMount(seen.device)) return false;
    const long flags = Raw(SYS_fcntl, fd, F_GETFL);
    if (flags < 0 || (flags & O_PATH) != 0) return false;
    if (gates_.Early() && gates_.Mapped(seen.device) != 0 && gates_.Registered(seen.device)) {
      return true;
    }
    AskEarly(fd);
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
  void BeginUnseen(direct::File, direct::Reason) override {}
  void EndUnseen(direct::File, direct::Reason) override {}
  void Uncover(direct::File, direct::Reason) override {}
  direct::File Known(uint64_t, uint64_t) override { return {}; }
  void UncoverInode(uint64_t, uint64_t, direct::Reason) override {}
  void UncoverAll(direct::Reason) override {}
  int Sync(direct::File, int, bool) override { return 0; }
  int SyncNow(direct::File, int, bool) override { return 0; }
  uint64_t Ticket(direct::File) override { return 0; }
  int AwaitTicket(uint64_t, int64_t) override { return 0; }
  direct::Watermarks Marks() const override { return {}; }
  int SyncAll() override { return 0; }  // the kernel's sync(2) follows

  // Returns the grant for a file, at a count of Page::mapped. It names the file, since a program that
  // closes descriptors past the library may have another one there.
  static uint64_t GrantOf(uint64_t inode, uint32_t mapped) {
    return (inode ^ inode >> 32) << 32 | mapped;
  }

 private:
  gate::MountGates gates_;
};

}  // namespace salius::preload
