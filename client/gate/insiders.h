// The processes whose outputs are gated, and whether a request comes from one of them.
//
// A number of a process says nothing: it is used again. So a registration keeps descriptors that
// name the process itself, and each look asks the kernel by them:
//
//   question                                   | by
//   -------------------------------------------+-----------------------------------------------
//   is the process still registered?           | its connection has not hung up
//   does it run the program that registered?   | reading its memory (/proc/PID/mem, opened then):
//                                              | end of file after an exec
//   is the thread one of its own?              | the name TID in /proc/PID/task, opened then
//
// A request that the kernel has not been answered keeps its thread alive, so the thread's number
// cannot be used again meanwhile. Every doubt means "outside", which costs waiting and no promise.
//
// Threads: any.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/file.h"

namespace salius::gate {

// Returns the number behind "Tgid:" in the text of /proc/TID/status; 0: there is none. Pure.
pid_t ParseTgid(std::string_view status);

class Insiders {
 public:
  Insiders() = default;
  Insiders(const Insiders&) = delete;
  Insiders& operator=(const Insiders&) = delete;

  // Registers the process that made `connection` (SO_PEERCRED), until that hangs up or Remove.
  // Returns the process's number. Errors: UNAVAILABLE when the process cannot be seen, because it
  // has ended or is in another PID namespace. `session`: Hello::session.
  absl::StatusOr<pid_t> Add(int connection, uint32_t session = 0);
  // Ends the registration that `connection` made; it is still open.
  void Remove(int connection);
  // The processes of the session of `connection` are outside from now on, and so are those that
  // register until its last registration has ended.
  void EndSession(int connection);

  // Returns whether the thread `tid` (0: unknown) is one of a registered process. A request of that
  // thread must be unanswered.
  bool Contains(uint32_t tid);

  // Returns the number of registrations.
  size_t size() const;

 private:
  struct Process {
    pid_t tgid = 0;
    uint32_t session = 0;
    mutable std::atomic<bool> outside{false};  // its session's early return has ended
    UniqueFd connection;  // a duplicate, so that its number stays this connection's
    UniqueFd tasks;       // /proc/TGID/task
    UniqueFd memory;      // /proc/TGID/mem
  };
  using ProcessRef = std::shared_ptr<const Process>;

  // The most threads whose process is remembered.
  static constexpr size_t kMaxKnown = 4096;

  static bool IsThread(const Process& process, uint32_t tid);
  // Returns the registrations of the process with this number.
  std::vector<ProcessRef> Find(pid_t tgid) const;

  mutable absl::Mutex mu_;
  absl::flat_hash_map<int, ProcessRef> by_connection_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint32_t, ProcessRef> by_thread_ ABSL_GUARDED_BY(mu_);  // as found last
};

}  // namespace salius::gate
