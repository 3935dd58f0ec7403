// The gate of a volume under external synchrony: what an output waits for
// (docs/external-synchrony.md). A volume has one gate for all processes; its state is in memory
// that they share.
//
// Dependency-free: no Abseil, no exceptions, no allocation. Any thread may call any function.
#pragma once

#include <cstdint>

namespace salius::gate {

// The argument of prctl(2) by which a process asks whether salius-run's filter watches it: EALREADY
// is the answer then.
inline constexpr uint32_t kGateProbe = 0x53474154;

// The environment variable with the pipes, sockets and terminals that salius-run itself holds open
// as long as the volume is in use, so that closing one shows no end of file: "DEVICE:INODE," for
// each, hexadecimal.
inline constexpr char kHeldVariable[] = "SALIUS_GATE_HELD";

// Reasons for which sync calls no longer return early, until the session ends.
enum EarlyEnd : uint32_t {
  // A process has a writable shared map of a file outside: its stores are outputs without a call.
  kSharedMap = 1u << 0,
  // A process lent pages to a pipe or socket outside (vmsplice(2), MSG_ZEROCOPY): likewise.
  kLentPages = 1u << 1,
  // A process attached System V shared memory that processes outside may have: likewise.
  kSharedMemory = 1u << 2,
  // A process writes to a file that may be outside and is logged as one of the volume: likewise.
  kFileOutside = 1u << 3,
};

class Gate {
 public:
  // Returns whether an output has something to wait for: a record that is not durable, or a sync
  // that is owed. Reads memory only; async-signal-safe.
  virtual bool Pending() const = 0;

  // Returns 0 when everything issued, and every sync that returned early, before the call is
  // durable. EIO when that cannot become true: the volume has failed or its coordinator has died.
  // The output must not be made then. ENOTCONN: this process can no longer wait; the supervisor can.
  virtual int Await() = 0;

  // Notes that something changed, before the call, that no record vouches for: an output waits for a
  // real sync that begins after this. Async-signal-safe.
  virtual void Owe() = 0;
  // Notes that a change is about to be made, which the caller cannot see the end of.
  virtual void Notice() = 0;
  // Returns how many were. A thread that finds more than before calls Owe: its own are made by then.
  virtual uint64_t Noticed() const = 0;

  // Remembers a pipe or socket that a gated process made: data in it has not left. `device` and
  // `inode`: of fstat(2).
  virtual void MakeInside(uint64_t device, uint64_t inode) = 0;
  // Returns whether it was remembered, and no descriptor has been passed outside since.
  virtual bool Inside(uint64_t device, uint64_t inode) const = 0;
  // A descriptor may have been passed to a process outside: forgets all that is inside, for good.
  virtual void Passed() = 0;

  // Sync calls wait from now on, in every process. Returns false when this process cannot bring that
  // about; the supervisor can.
  virtual bool EndEarly(EarlyEnd reason) = 0;

 protected:
  ~Gate() = default;
};

}  // namespace salius::gate
