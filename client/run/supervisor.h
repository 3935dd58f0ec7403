// Waits for the outputs that gated processes make past the call page: the other end of the seccomp
// filter (client/gate/filter.h).
//
// The kernel stops each such call and reports it here. A call that is no output, or that depends on
// nothing, continues at once. The others continue together once everything issued is durable. When
// that cannot become true, they fail with EIO; only the end of a process continues. When this
// process dies, the kernel answers ENOSYS to every such call: none passes.
//
// A program that replaces a descriptor in one thread while another writes to it may have the write
// judged by the descriptor before. The page of the manual names this limit.
//
// Threads: two of its own. One judges the calls, the other waits.
#pragma once

#include <linux/seccomp.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/gate/filter.h"
#include "client/gate/gate.h"
#include "common/file.h"

namespace salius::run {

// The volumes and what salius-run holds open, as the supervisor must know them.
struct Surroundings {
  // The real path of a direct volume's directory. "": all files of `devices` are of the volumes,
  // which are mounts, and their daemons see every change.
  std::string root;
  std::set<uint64_t> devices;  // of the volumes' files
  // Pipes, sockets and terminals that this process has open until its end: closing one elsewhere
  // shows no end of file. Device and inode.
  std::set<std::pair<uint64_t, uint64_t>> held;
  // The shared memory of the gate, which is mapped by every process. Device and inode.
  std::pair<uint64_t, uint64_t> window;
};

// Returns the pipes, sockets and character devices that this process has open now.
std::set<std::pair<uint64_t, uint64_t>> OpenStreams();
// Returns them as the value of gate::kHeldVariable.
std::string HeldText(const std::set<std::pair<uint64_t, uint64_t>>& held);

class Supervisor {
 public:
  // `listener`: of the filter. `gate` outlives it.
  Supervisor(UniqueFd listener, gate::Gate& gate, Surroundings surroundings);
  // From now on every call that it would have judged fails with ENOSYS.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Waits until the last process with the filter has ended, for at most `timeout_ms`; -1: no limit.
  // Returns whether it has. Needs Linux 5.9.
  bool AwaitLast(int timeout_ms) const;

 private:
  struct Stopped {
    uint64_t id = 0;
    bool ends = false;  // the call ends the process: it continues whatever happens
  };

  void Judge();
  void WaitLoop();
  void Take(const seccomp_notif& call);
  void Answer(const Stopped& call, int error);
  // Returns whether the call may change something of the volume.
  bool ChangesVolume(const gate::OutputCall& what, const seccomp_notif& call) const;
  bool IsOfVolume(int thread, int fd) const;

  // Returns whether what the call does can be noticed outside.
  bool IsOutput(const gate::OutputCall& what, const seccomp_notif& call);
  bool LeadsOutside(int thread, int fd) const;
  bool ShowsEnd(int thread, int fd) const;
  bool AnyShowsEnd(int thread, bool at_exec) const;
  bool NameIsOutside(int thread, int64_t directory, uint64_t path) const;
  // `link`: in /proc, of the descriptor of a named file.
  bool InVolume(uint64_t device, const std::string& link) const;
  bool IsBelowRoot(const std::string& path) const;
  bool SendsOutside(const seccomp_notif& call);
  bool SignalsOutside(const seccomp_notif& call, const gate::OutputCall& what) const;
  bool MapsOutside(const seccomp_notif& call, int fd);

  const UniqueFd listener_;
  const UniqueFd stop_;  // an eventfd
  gate::Gate& gate_;
  const Surroundings surroundings_;
  // Threads whose last call changed something of the volume, or will. The judge's alone.
  std::set<uint32_t> changing_;
  absl::Mutex mu_;
  std::vector<Stopped> waiting_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread judge_, waiter_;
};

}  // namespace salius::run
