// LaneWorkers whose work a test does when it wants, in the order that it wants.
//
// Threads: any. Work is done on the caller's thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/volume/lane_workers.h"

namespace salius {

class QueueWorkers final : public LaneWorkers {
 public:
  void Run(const WorkPlace&, std::function<void()> work) override {
    absl::MutexLock lock(&mu_);
    if (!stopped_) work_.push_back(std::move(work));
  }
  void Stop() override {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
    work_.clear();
  }
  size_t waiting() const {
    absl::MutexLock lock(&mu_);
    return work_.size();
  }
  // Does the nth piece of work that waits (0: the oldest). Returns false when there is none.
  bool Do(size_t nth = 0) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mu_);
      if (nth >= work_.size()) return false;
      work = std::move(work_[nth]);
      work_.erase(work_.begin() + static_cast<ptrdiff_t>(nth));
    }
    work();
    return true;
  }

 private:
  mutable absl::Mutex mu_;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace salius
