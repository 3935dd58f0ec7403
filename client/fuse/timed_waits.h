// Waits for durability with a time limit (SALIUS_IOC_WAIT). No thread waits for one: the stream
// calls back when its record is durable, and one thread for all answers those whose time is over.
//
// A record has one callback at the stream, however many waits for it time out meanwhile. So a
// program that polls a volume that is stuck takes no memory.
//
// Threads: any. The lock is a leaf.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/session/record_stream.h"
#include "common/ids.h"
#include "common/monotonic_cond.h"

namespace salius {

class TimedWaits {
 public:
  TimedWaits() = default;
  // Every callback has been called.
  ~TimedWaits();
  TimedWaits(const TimedWaits&) = delete;
  TimedWaits& operator=(const TimedWaits&) = delete;

  // Calls `answer` once: with the outcome of the wait for `seq`, or with ETIMEDOUT after
  // `timeout_ns` nanoseconds. It may be called from this thread. `start` begins the wait at the
  // stream: it has End(seq, outcome) called once. It is called at most once, without a lock.
  void Run(Seq seq, int64_t timeout_ns, DurableCallback answer, absl::FunctionRef<void()> start);
  // Ends all waits for `seq`.
  void End(Seq seq, const absl::Status& outcome);
  // Returns when no answer is being given. Every callback has been called.
  void AwaitIdle();

 private:
  struct Wait {
    Seq seq = 0;
    DurableCallback answer;
  };
  using ByTime = std::multimap<int64_t, Wait>;  // by the end of the time, in ns of the clock

  void Expire() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Mutex mutex_;
  ByTime waits_ ABSL_GUARDED_BY(mutex_);
  // The waits for each record that has a callback at the stream; maybe none any more.
  std::map<Seq, std::list<ByTime::iterator>> by_seq_ ABSL_GUARDED_BY(mutex_);
  int answering_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCond changed_;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace salius
