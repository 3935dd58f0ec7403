// Has the kernel write back and drop pages of its cache, and calls back when it has.
//
// The kernel waits for the lock of each page in the range, and so for the READ or WRITE that holds
// it. Workers must be free to answer these. So a worker never waits until pages are dropped. The
// threads here do, and no wait of a worker depends on them.
//
// The kernel limits the requests of one kind, "background", that are under way: read-ahead and
// write-back. An answer to one of these must not wait for pages: otherwise pages whose READ waits
// for its turn would never be unlocked. Asynchronous direct I/O would be background too, so it is
// not negotiated (connection.cc).
//
// Threads: Run may be called from any thread. One thread inside is started at first, and others when
// they are needed. If another cannot be started, those that there are do the work.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/threads.h"

namespace salius {

class PageInvalidator {
 public:
  // Returns when the pages have been written back and dropped; a length of 0 is "to the end".
  using Notify = std::function<void(uint64_t nodeid, uint64_t offset, uint64_t length)>;

  explicit PageInvalidator(ThreadStarter start = StartThread) : start_(std::move(start)) {}
  // Waits for the tasks that were given.
  ~PageInvalidator();
  PageInvalidator(const PageInvalidator&) = delete;
  PageInvalidator& operator=(const PageInvalidator&) = delete;

  // Sets the kernel's notification; called once, before the first Run.
  void SetNotify(Notify notify);

  // Calls `then` from a thread of its own after the pages have been dropped. The node must stay in
  // use until then: a request about it is not answered yet.
  void Run(uint64_t nodeid, uint64_t offset, uint64_t length, std::function<void()> then);

  // Returns when every `then` has returned.
  void AwaitIdle();

 private:
  struct Task {
    uint64_t nodeid = 0;
    uint64_t offset = 0;
    uint64_t length = 0;
    std::function<void()> then;
  };

  // A thread may wait for a disk that hangs; the others continue.
  static constexpr size_t kMaxThreads = 16;

  void Work();

  const ThreadStarter start_;
  Notify notify_;
  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;     // threads that wait for a task
  size_t pending_ ABSL_GUARDED_BY(mutex_) = 0;  // tasks that have not ended
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace salius
