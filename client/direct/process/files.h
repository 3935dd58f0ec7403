// The files of a direct volume, as one process of its command uses them: the calls of the preload
// library. `Process` (process.h) is the implementation on the shared window.
//
// A tracked write is: Lock, the write itself (pwrite(2) and the like), LogWrite, Unlock; then, for
// a synchronous descriptor, Sync. A write that the library cannot log is made between BeginUnseen
// and EndUnseen, which make the next Sync of the file a real fsync(2).
//
// Dependency-free: no Abseil, no exceptions, no RTTI, no allocation. Any thread may call any
// function. Only Owns, Known, BeginUnseen, EndUnseen and the Uncover family may be called from a
// signal handler that interrupted another call of the same thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "client/direct/window/file.h"
#include "client/direct/window/reason.h"

namespace salius::direct {

struct Watermarks {
  uint64_t checkpoint = 0, durable = 0, issued = 0;
};

class Files {
 public:
  // Returns whether `fd` is a descriptor of the library's own. close(2), close_range(2) and dup2(2)
  // of the program must leave it alone. Async-signal-safe.
  virtual bool Owns(int fd) const = 0;

  // Registers the file behind `fd` if it is a regular file of the volume. Call it after each open
  // for writing, and for a descriptor that is to be synced and is not known yet. Gives the file its
  // id if it has none. `made`: the open created the file, so its name is not on disk.
  // Returns an untracked File when the descriptor is of another volume, no regular file, or without
  // room in the table: the caller then uses the raw system calls for it. Without permission to read
  // the id or to give one, the file is tracked, and uncovered for as long as that lasts.
  virtual File Open(int fd, bool made) = 0;

  // Waits until the log has room for a write of `bytes` bytes to the file, for at most
  // kLongestRoomWaitNs. Call it before Lock and the write: a write that finds no room is not logged,
  // and then the file's next Sync is a real fsync(2). Returns at once when the write will not be
  // logged anyway. Needed for nothing but speed.
  static constexpr int64_t kLongestRoomWaitNs = 20'000'000;
  virtual void AwaitRoom(File file, size_t bytes) = 0;

  // Take and give back the file's lock: its writes and its records are in one order. It is shared
  // by all processes. Not recursive. Hold it over the write itself and LogWrite, over nothing else.
  // Nothing happens for an untracked file.
  virtual void Lock(File file) = 0;
  virtual void Unlock(File file) = 0;

  // Under external synchrony: the next output waits for a real sync, since something of the volume
  // changed before this call that no record vouches for. Async-signal-safe. LogWrite, LogTruncate
  // and Uncover do it themselves.
  virtual void Changed() = 0;

  // Logs bytes that were just written at `offset`, under Lock: `bytes` is the number that the write
  // returned, at most the bytes of the `count` parts. Returns the last seq that a synchronous caller
  // has to await; 0 when nothing was logged, because no log is kept now or the file is uncovered.
  // Either way Sync makes the bytes durable. Never fails and never blocks for room.
  virtual uint64_t LogWrite(File file, uint64_t offset, const iovec* parts, int count,
                            size_t bytes) = 0;
  // Logs a truncation to `size` bytes, under Lock. Otherwise as LogWrite.
  virtual uint64_t LogTruncate(File file, uint64_t size) = 0;

  // A change of the file that the log does not see begins: nothing covers the file until EndUnseen,
  // neither a Sync nor a checkpoint. A process that dies before EndUnseen leaves the file uncovered
  // until the session ends: what it changed last may be on no disk. Any time, with or without Lock;
  // async-signal-safe.
  virtual void BeginUnseen(File file, Reason reason) = 0;
  // The change has ended, with the same file and reason: the file is as after Uncover, if no other
  // such change is under way.
  virtual void EndUnseen(File file, Reason reason) = 0;

  // Makes the file uncovered, for `reason`: its next Sync is a real fsync(2). Call it after a change
  // that the log did not see. Any time, with or without Lock; async-signal-safe.
  virtual void Uncover(File file, Reason reason) = 0;

  // Returns the file of this device and inode number, which need not be open, if Open was called for
  // it in this session by any process; else an untracked one. Needs no right to the file. Any time;
  // async-signal-safe.
  virtual File Known(uint64_t device, uint64_t inode) = 0;

  // Uncovers the file of this device and inode number, which need not be open, if Open was called
  // for it in this session by any process. Else nothing is lost: its first Open makes it uncovered.
  // Needs no right to the file. Otherwise as Uncover.
  virtual void UncoverInode(uint64_t device, uint64_t inode, Reason reason) = 0;

  // Makes every file uncovered that Open was called for in this session. Otherwise as Uncover.
  virtual void UncoverAll(Reason reason) = 0;

  // Returns 0 when everything written to the file before the call is durable, else an errno: that
  // of fsync(2), or EIO when the volume has failed or its coordinator has died. `fd`: a descriptor
  // of the file. `data_only`: fdatasync(2) will do. Waits; call it without Lock.
  virtual int Sync(File file, int fd, bool data_only) = 0;

  // Does what Sync does without external synchrony: waits under every contract.
  virtual int SyncNow(File file, int fd, bool data_only) = 0;

  // Returns a ticket for what SyncNow would wait for now; of an untracked file, what SyncAll would.
  // 0: everything is durable already.
  virtual uint64_t Ticket(File file) = 0;
  // Returns 0 when what the ticket is for is durable. `timeout_ns`: below 0 for no limit. ETIMEDOUT;
  // EINVAL: no such ticket was given out; EIO: it cannot become durable.
  virtual int AwaitTicket(uint64_t ticket, int64_t timeout_ns) = 0;

  // Returns the watermarks of the session.
  virtual Watermarks Marks() const = 0;

  // Does what Sync does for all files of the volume (sync(2), syncfs(2)).
  virtual int SyncAll() = 0;

  // Returns whether `fd` is the volume's directory, or a file or directory below it. O_PATH will do.
  // Any time; async-signal-safe.
  virtual bool IsOfVolume(int fd) const = 0;
  // Returns whether `fd` is surely none of these: IsOfVolume says false also when the kernel does not
  // tell where a file is. Otherwise as IsOfVolume.
  virtual bool IsOutside(int fd) const = 0;

  // Takes note of a sync of the directory behind `fd`, and returns true, when it is one of the
  // volume and sync calls return early now: the next output waits for it. Else the caller syncs.
  virtual bool OweDirectory(int fd) = 0;

  // Returns whether files of this device are on a mount at whose gate this process is registered.
  // Such files are untracked: the daemon keeps their log.
  virtual bool IsMount(uint64_t device) const {
    (void)device;
    return false;
  }
  // Has the daemon of such a mount let synchronous calls on `fd` return early, if it will. Returns
  // the grant for SyncsEarly; 0: it will not.
  virtual uint64_t AskEarly(int fd) {
    (void)fd;
    return 0;
  }
  // Returns whether a sync of `fd` would return early if it were made now, by a grant that AskEarly
  // gave for it. Then it need not be made. False: ask again. Makes no call to the daemon.
  virtual bool SyncsEarly(int fd, uint64_t grant) const {
    (void)fd;
    (void)grant;
    return false;
  }

  // Call it in the child after fork(2), before anything else: the child is a process of its own. In
  // a new PID namespace it does not return: it ends the process with exit code 125 and a message.
  virtual void AfterFork() = 0;

 protected:
  ~Files() = default;
};

}  // namespace salius::direct
