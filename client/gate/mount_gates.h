// The gates of one or several mounts with commit=external, for the processes of one command.
//
// Their common state is in a memfd of salius-run (Shared): the mounts, and the pipes and sockets
// that are inside. Each process maps it and registers at every gate, salius-run first; a child made
// by fork registers itself. While a process is not registered it is outside: its synchronous calls
// wait.
//
// All register at the same daemons. When one has ended, and another serves the volume in its place,
// no process registers there: salius-run would not wait for it.
//
// Needs the standard library and POSIX only, and never allocates. Threads: any, but for Attach and
// AfterFork, which are called before the process has a second thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client/gate/client.h"
#include "client/gate/gate.h"
#include "client/gate/inside.h"

namespace salius::gate {

// The environment variable with the path of the shared memory: "/proc/PID/fd/NUMBER".
inline constexpr char kGatesVariable[] = "SALIUS_GATE_MEMORY";

inline constexpr uint64_t kSharedMagic = 0x3248534554414753;  // "SGATESH2"
inline constexpr size_t kMostMounts = 8;

// The shared memory. Made of zeros.
struct Shared {
  struct Mount {
    uint64_t device;  // of the mount's files (fstat(2))
    uint64_t page;    // the inode number of its gate page, which the first process stores
    char gate[112];   // the path of its gate socket, with a terminating 0
  };
  // Constant before the command starts.
  uint64_t magic;
  uint32_t count;
  uint32_t session;  // of these processes (messages.h); not 0
  Mount mounts[kMostMounts];

  std::atomic<uint32_t> early_end;  // a set of EarlyEnd
  std::atomic<uint32_t> passed;     // 1: a descriptor may have been passed outside
  std::atomic<uint32_t> ended;      // 1: every daemon knows that early return has ended
  uint32_t reserved;
  std::atomic<uint64_t> inside[kInsideSlots];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

class MountGates final : public Gate {
 public:
  // Maps `memory`, a memfd with a Shared, which stays the caller's, and registers this process at
  // every gate there. Returns 0 or an errno: EPROTO when it is no such memory; ESTALE: a daemon is
  // not the one that the first process registered at; else that of the gate which refused. The
  // object must not be used then.
  int Attach(int memory);

  // Call it in the child after fork(2), before anything else. A child that cannot register waits at
  // the gates as its parent does, and is outside for the mounts.
  void AfterFork();

  // Returns whether `fd` is a descriptor of this object's own.
  bool Owns(int fd) const;
  // Returns whether files of this device are on one of the mounts.
  bool IsMount(uint64_t device) const;
  // Returns whether synchronous calls may return early now.
  bool Early() const { return shared_->early_end.load() == 0; }
  // Returns Page::mapped of the mount with this device; 0: it does not count, or there is none.
  uint32_t Mapped(uint64_t device) const;
  // Returns whether this process is registered at the mount with this device, whose volume has not
  // failed.
  bool Registered(uint64_t device) const;

  bool Pending() const override;
  int Await() override;
  // A daemon sees every change of its mount: each is among what was issued.
  void Owe() override {}
  void Notice() override {}
  uint64_t Noticed() const override { return 0; }
  void MakeInside(uint64_t device, uint64_t inode) override;
  bool Inside(uint64_t device, uint64_t inode) const override;
  void Passed() override;
  // When it returns true, the daemons have all processes of the command wait, as those outside.
  bool EndEarly(EarlyEnd reason) override;

 private:
  // Registers at the gate of one mount, in the place of what was there.
  int Register(size_t mount);
  // Returns the number of the mount with this device; count_: there is none.
  size_t Find(uint64_t device) const;

  Shared* shared_ = nullptr;
  size_t count_ = 0;
  bool first_ = false;  // no program can close the connections of this process
  bool outside_ = false;  // a child of fork(2) that could not register: it uses its parent's
  Joined joined_[kMostMounts];
};

}  // namespace salius::gate
