// The system calls of a simulated host's processes (client/direct/window/system.h): files in
// memory with a page cache and a disk, one datagram socket, futexes, clocks. A call takes simulated
// time. A sync takes effect at some moment of its time: a file's data reaches the disk as it is
// then.
//
// Threads: one. At most one kernel exists at a time.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "common/net.h"
#include "common/random.h"
#include "tests/sim/direct_machine.h"
#include "tests/unit/storage/memory_backing.h"

namespace salius::sim {

class DirectKernel {
 public:
  // The environment.
  class World {
   public:
    virtual ~World() = default;
    virtual int64_t SyncTime() = 0;  // of the next sync, ns
    virtual bool SyncFails() = 0;    // the next sync
    virtual void SendToReplica(size_t replica, std::string datagram) = 0;
    // The running thread asks for datagrams. It has handled those of earlier calls.
    virtual void Receives() = 0;
    // The running thread gets this datagram.
    virtual void Received(size_t replica, const std::string& datagram) = 0;
  };
  // Descriptors of no file.
  static constexpr int kWindowFd = 1 << 26, kSocketFd = kWindowFd + 1, kLockFd = kWindowFd + 2,
                       kConnectionFd = kWindowFd + 3;

  DirectKernel(DirectMachine& machine, MemoryBacking& backing, World& world, uint64_t seed);
  ~DirectKernel();
  DirectKernel(const DirectKernel&) = delete;
  DirectKernel& operator=(const DirectKernel&) = delete;
  static DirectKernel* current();

  // Sets the memory that kWindowFd maps.
  void SetWindow(void* memory) { window_ = memory; }
  // Sets the descriptors of all files outside of .salius.
  void SetFiles(std::vector<int> files) { files_ = std::move(files); }
  void AddFile(int fd) { files_.push_back(fd); }
  void RemoveFile(int fd) { std::erase(files_, fd); }
  // Sets the number of CPUs on which processes may run.
  void SetCpus(int cpus) { cpus_ = cpus; }
  int cpus() const { return cpus_; }
  void SetClockOffset(int64_t ns) { realtime_offset_ = ns; }

  // The system calls, of the running thread. Returns -errno on an error.
  long Call(long number, const long (&arguments)[6]);
  int64_t RealtimeNs() const { return machine_.now() + realtime_offset_; }
  // Syncs the whole file system, as syncfs(2).
  int SyncFs();

  // A datagram from a replica arrives at the socket.
  void Arrive(size_t replica, std::string datagram);
  void CloseSocket() { arrived_.clear(); }
  static SocketAddress AddressOf(size_t replica);

  uint64_t file_syncs() const { return file_syncs_; }

 private:
  struct Arrived {
    std::string bytes;
    size_t replica;
  };
  int SyncFile(int fd);
  long Send(const mmsghdr* messages, unsigned count);
  long Receive(mmsghdr* messages, unsigned count, bool wait);
  long Futex(long word, long operation, long value, long until, long bits);
  long ReadLink(const char* path, char* out, size_t size) const;

  DirectMachine& machine_;
  MemoryBacking& backing_;
  World& world_;
  Random random_;
  void* window_ = nullptr;
  std::vector<int> files_;
  int cpus_ = 1;
  int64_t realtime_offset_ = 1'700'000'000'000'000'000;
  std::deque<Arrived> arrived_;
  uint64_t file_syncs_ = 0;
};

}  // namespace salius::sim
