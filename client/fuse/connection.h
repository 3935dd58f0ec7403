// One FUSE connection: mount(2), the workers that read requests from it, and its end.
//
// libfuse decodes most requests (fuse_session_process_buf). It gets our descriptor and our writev,
// so that the answer to INIT can carry flags that it does not know. The loop is ours because
// libfuse's loop cannot leave some operations to the caller, and cancels threads when it ends.
//
// Ends, and the state after each:
// - umount(2) by any process: the workers read ENODEV and leave. Every answer has been given.
// - Unmount() (SIGTERM): the same, when no file is open. Otherwise dirty pages of the page cache
//   are written, the mount is detached from the tree, the workers finish their requests, and
//   programs that still have a file open get ENOTCONN.
// - The kernel ends the connection (a request time-out, `abort` in fusectl, umount -f of a busy
//   mount): the workers read ENODEV too, but the mount stays in the table, dead. It is left there
//   (CutOff), so that programs get ENOTCONN and do not write into the directory below.
// - Unmount() when the mount is no longer at its place (`umount -l`, or another one lies on top):
//   the same, but this mount point is not unmounted, because another mount may be there by now.
//
// Threads: Mount, Start, Unmount and Join belong to the thread that owns the connection; workers
// are inside.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/fuse/front.h"
#include "client/fuse/workers.h"
#include "common/file.h"
#include "common/spinner.h"

namespace salius {

struct ConnectionOptions {
  std::string source;             // shown in the mount table: the backing directory
  std::string mountpoint;         // absolute
  unsigned long mount_flags = 0;  // MS_* of mount(2)
  int threads = 1;
  int64_t spin_ns = 0;  // how long a worker polls for the next request before it sleeps
};

class Connection {
 public:
  // Mounts; nothing is answered before Start. `front` must outlive the connection. Errors:
  // mount(2)'s own.
  static absl::StatusOr<std::unique_ptr<Connection>> Mount(Front& front, ConnectionOptions options);
  // Unmounts if Start was never called; otherwise Join must have returned.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Starts the workers. `on_end` is called once, on the last worker to leave.
  void Start(std::function<void()> on_end);

  // Asks the kernel for the root and for a name in it. OK means that the mount answers.
  absl::Status Probe() const;

  // Ends the connection as the file comment says. Waits for requests being worked on.
  void Unmount();
  // Returns whether the connection ended although the mount was not unmounted; then the dead mount
  // stays. To be called when the workers have left and Unmount was not called. Waits a moment for a
  // forced umount(8), which ends the connection before it removes the mount.
  bool CutOff();
  // Waits until every worker has left. Afterwards no request is being or will be answered.
  void Join();

 private:
  Connection(Front& front, ConnectionOptions options, UniqueFd fd, fuse_session* session);
  void Work(Workers::Worker& worker);
  // Answers one message, or puts it aside. Returns false when it is no request.
  bool Handle(const fuse_buf& message, Workers::Worker& worker);
  // Signals the workers until they have left.
  void KickUntilLeft();
  // Does so for at most `bound`; returns whether they have left.
  bool KickFor(std::chrono::milliseconds bound);
  // Has the kernel write its dirty pages; the workers must run. Errors are logged.
  void SyncPages(const std::string& mountpoint) const;
  // Returns when no request waits to be read, or after a few seconds.
  void AwaitNoRequests() const;
  // Returns whether the topmost mount there is of our connection.
  bool IsOursAt(const std::string& mountpoint) const;
  // Returns whether our file system is mounted anywhere in this mount namespace.
  bool InMountTable() const;
  bool IsOurs() const { return IsOursAt(options_.mountpoint); }
  void Detach();

  Front& front_;
  const ConnectionOptions options_;
  const int fd_;           // owned by session_
  fuse_session* session_;  // null after Close
  std::atomic<bool> stop_{false};
  Workers workers_;
  bool mounted_ = true;
  std::string device_;  // of our mount, in the mount table

  Spinner spinner_;
};

// Returns the capabilities that libfuse is to ask for, of those that the kernel offers. `external`:
// of a mount with commit=external. Pure.
uint32_t WantedCapabilities(uint32_t offered, bool external);

// Returns the flags that the reply gets beyond those for which libfuse can ask, of those that the
// kernel offers. Pure.
uint64_t ExtraInitFlags(uint64_t offered);

// Returns whether a request of this kind may wait for the disk, or for room in the window. FORGET
// may: it frees the space of a removed file. Pure.
bool MayWait(uint32_t opcode);

}  // namespace salius
