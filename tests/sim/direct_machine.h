// The processes of a simulated host: threads that take turns on simulated time, their locks and
// sleeps. A thread is a fiber. It can be suspended, or die with its process, at each *step*: an
// access to the shared memory (tests/sim/memory_steps.cc), a system call, or a lock.
//
// A process that dies leaves the shared memory as it is. The kernel's part is done: its robust locks
// are marked (futex(2), "Robust futexes").
//
// Threads: one. At most one machine exists at a time.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <queue>
#include <string_view>
#include <vector>

#include "common/random.h"
#include "tests/sim/fiber.h"

namespace salius::sim {

class DirectMachine {
 public:
  using ProcessId = int;
  static constexpr int64_t kForever = INT64_MAX / 4;
  struct Thread {
    ProcessId process = 0;
    uint32_t number = 0;     // as gettid(2); never used again
    std::string_view doing;  // for the counters of kills
    uint64_t turn = 0;       // number of the event that continues it
    bool woken = false;      // by Wake, since it blocked
    const void* waits_on = nullptr;
    uint32_t bits = 0;  // of its futex wait
    std::vector<pthread_mutex_t*> held;
    pthread_mutex_t* wanted = nullptr;  // the lock that it waits for, or was woken for
    std::unique_ptr<Fiber> fiber;
  };

  // A thread is suspended after about `steps_per_switch` steps.
  DirectMachine(uint64_t seed, uint64_t steps_per_switch);
  ~DirectMachine();
  DirectMachine(const DirectMachine&) = delete;
  DirectMachine& operator=(const DirectMachine&) = delete;
  // Returns the machine that exists, or null.
  static DirectMachine* current();

  // ---- time
  int64_t now() const { return now_; }  // monotonic, ns
  // Calls `what` outside of all threads.
  void At(int64_t delay, std::function<void()> what);
  // Lets time pass until then, or until `done` (may be null) returns true.
  void Run(int64_t until, const std::function<bool()>& done = nullptr);

  // ---- processes
  ProcessId NewProcess() { return next_process_++; }
  void Spawn(ProcessId process, std::function<void()> body);
  bool Lives(ProcessId process) const;
  // Ends the process as SIGKILL does. Does not return to a thread of it.
  void Kill(ProcessId process);
  // Ends it, or stops it for `stop_ns`, after this number of steps of it.
  void KillAfter(ProcessId process, uint64_t steps);
  void StopAfter(ProcessId process, uint64_t steps, int64_t stop_ns);
  // Sets the function that is called for each thread that is killed.
  void OnKill(std::function<void(const Thread&)> killed) { on_kill_ = std::move(killed); }

  // ---- the running thread
  Thread& running();
  static bool InThread() { return Fiber::running() != nullptr; }
  void Step();
  // Counts an access to memory as a step if it is the shared memory.
  void Touch(const void* address) {
    if (static_cast<size_t>(static_cast<const char*>(address) - memory_) < memory_bytes_) Step();
  }
  void SetMemory(const void* memory, size_t bytes) {
    memory_ = static_cast<const char*>(memory);
    memory_bytes_ = bytes;
  }
  void Sleep(int64_t ns);
  // Sleeps until Wake(what) with a bit of `bits`, at most `ns`. Returns whether it was woken.
  bool Block(const void* what, int64_t ns, uint32_t bits = UINT32_MAX);
  // Wakes at most `count` threads that block on `what`, in the order in which they began.
  int Wake(const void* what, int count, uint32_t bits = UINT32_MAX);

  // ---- robust locks; results as of pthread_mutex_lock(3) and the like
  int Lock(pthread_mutex_t* lock);
  int TryLock(pthread_mutex_t* lock);
  int Unlock(pthread_mutex_t* lock);
  bool IsShared(const pthread_mutex_t* lock) const {
    return static_cast<size_t>(reinterpret_cast<const char*>(lock) - memory_) < memory_bytes_;
  }

 private:
  struct Event {
    int64_t time;
    uint64_t order;
    Thread* thread;  // to be continued; null: call what
    std::function<void()> what;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };
  struct Fate {
    uint64_t steps_left = 0;
    int64_t stop_ns = 0;  // 0: it dies
  };
  void Continue(Thread* thread, int64_t delay);
  void Bury(Thread& thread);
  int64_t Pause();

  Random random_;
  const uint64_t steps_per_switch_;
  uint64_t switch_in_ = 1;
  int64_t now_ = 1'000'000'000;
  uint64_t order_ = 0;
  std::vector<Event> queue_;  // a heap
  std::list<Thread> threads_;
  std::map<const void*, std::vector<Thread*>> blocked_;
  Thread* running_ = nullptr;
  bool running_died_ = false;
  std::map<ProcessId, Fate> fates_;
  ProcessId next_process_ = 1;
  uint32_t next_thread_ = 100;
  const char* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  std::function<void(const Thread&)> on_kill_;
};

// A lock between the threads of one process.
class ThreadLock {
 public:
  void Lock() {
    while (held_) DirectMachine::current()->Block(this, DirectMachine::kForever);
    held_ = true;
  }
  void Unlock() {
    held_ = false;
    DirectMachine::current()->Wake(this, 1);
  }

 private:
  bool held_ = false;
};

}  // namespace salius::sim
