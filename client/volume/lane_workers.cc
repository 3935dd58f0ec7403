#include "client/volume/lane_workers.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace salius {
namespace {

class ThreadWorkers final : public LaneWorkers {
 public:
  ThreadWorkers(size_t most, ThreadStarter start) : most_(most), start_(std::move(start)) {
    threads_.push_back(start_([this] { Loop(); }));
  }
  ~ThreadWorkers() override { Stop(); }

  void Run(const WorkPlace& place, std::function<void()> work) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;
    work_.Add(place, std::move(work));
    const bool more = idle_ < work_.size() && threads_.size() < most_;
    if (!more || !AddThread(threads_, [this] { Loop(); }, start_)) added_.notify_one();
  }

  void Stop() override {
    std::vector<std::thread> threads;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
      work_ = Elevator();
      threads.swap(threads_);
    }
    added_.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

 private:
  void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      ++idle_;
      added_.wait(lock, [this] { return stopping_ || !work_.empty(); });
      --idle_;
      if (stopping_) return;
      const Elevator::Work work = work_.Take();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  const size_t most_;
  const ThreadStarter start_;
  std::mutex mutex_;  // guards what follows; never held over work
  std::condition_variable added_;
  Elevator work_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace

std::unique_ptr<LaneWorkers> MakeLaneWorkers(size_t most, ThreadStarter start) {
  return std::make_unique<ThreadWorkers>(most, std::move(start));
}

}  // namespace salius
