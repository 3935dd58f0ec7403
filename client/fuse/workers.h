// The threads that read requests from /dev/fuse, and more of them while all are held up. One always
// reads, so that a request that needs no disk is answered although other requests wait for a disk
// that hangs.
//
// - `threads` workers stay for the life of the connection.
// - A watcher looks every kLookEvery. When every worker has had the same request since the last
//   look, it starts more (kGrowth). An extra worker leaves when enough others read.
// - At kMaxWorkers one is kept free: when all others have requests that may wait for the disk, it
//   puts the next such request aside (Park). A worker that has answered its own takes that over.
//
// Threads: Start, Join and Kick belong to the thread that owns the connection; the methods of
// Worker to the worker.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "common/event.h"

namespace salius {

class Workers {
 public:
  static constexpr int kMaxWorkers = 256;
  static constexpr std::chrono::milliseconds kLookEvery{20};

  class Worker {
   public:
    // Note the begin and the end of a request's read.
    void Reads() {
      may_wait_.store(false, std::memory_order_relaxed);
      Next();
    }
    void Works() { Next(); }

   private:
    friend class Workers;
    void Next() {
      state_.store(state_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    bool reading() const { return state_.load(std::memory_order_acquire) % 2 == 1; }
    // Odd while it reads; grows with every request.
    alignas(64) std::atomic<uint64_t> state_{0};
    std::atomic<bool> may_wait_{false};  // its request may wait for the disk
    std::atomic<bool> gone_{false};
    bool extra_ = false;
    std::thread thread_;
  };

  // Starts the workers. Each runs `work` until it leaves; the last one to leave calls `on_end`.
  void Start(int threads, std::function<void(Worker&)> work, std::function<void()> on_end);
  // Waits until every worker has left.
  void Join();
  // Sends a signal to every worker.
  void Kick(int signal);
  // Waits for at most `bound`; returns whether the last worker has left.
  bool WaitFor(std::chrono::milliseconds bound) { return left_.WaitFor(bound); }
  // Returns whether Start was never called.
  bool empty() const { return all_.empty(); }

  // Returns whether the worker, which has answered its request, is not needed any more.
  bool MayLeave(const Worker& worker) const;
  // Returns whether a worker must put its request, which may wait for the disk, aside.
  bool MustPark(Worker& worker) const;
  void Park(std::string request);
  // Takes a request that was put aside, for a worker that has answered its own. Returns false when
  // there is none or the worker must read.
  bool TakeParked(Worker& worker, std::string* request);

 private:
  void StartOne(bool extra);
  void Watch();
  // Return how many workers but `except` read, and how many have a request that may wait for the
  // disk. mutex_ is held.
  int ReadingCount(const Worker* except) const;
  int MayWaitCount() const;
  void Leave(Worker& worker);

  int threads_ = 0;
  std::function<void(Worker&)> work_;
  std::function<void()> on_end_;
  Event left_;  // every worker has left
  std::atomic<int> working_{0};
  std::atomic<int> parked_count_{0};

  mutable std::mutex mutex_;  // guards what follows
  std::list<Worker> all_;
  std::deque<std::string> parked_;
  bool no_threads_logged_ = false;  // it was logged that no thread can be made
  std::thread watcher_;
};

}  // namespace salius
