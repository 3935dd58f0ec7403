#include "client/fuse/workers.h"

#include <signal.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "common/log.h"

namespace salius {
namespace {

// The factor by which the workers grow when all are held up.
constexpr int kGrowth = 4;

}  // namespace

void Workers::Start(int threads, std::function<void(Worker&)> work, std::function<void()> on_end) {
  threads_ = threads;
  work_ = std::move(work);
  on_end_ = std::move(on_end);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    working_.store(threads);
    for (int i = 0; i < threads; ++i) StartOne(/*extra=*/false);
  }
  watcher_ = std::thread([this] { Watch(); });
}

void Workers::StartOne(bool extra) {
  Worker& worker = all_.emplace_back();
  worker.extra_ = extra;
  worker.thread_ = std::thread([this, &worker] {
    work_(worker);
    Leave(worker);
  });
}

void Workers::Leave(Worker& worker) {
  worker.gone_.store(true);
  if (working_.fetch_sub(1) != 1) return;
  left_.Set();
  on_end_();
}

void Workers::Join() {
  if (watcher_.joinable()) watcher_.join();
  for (Worker& worker : all_) worker.thread_.join();
  all_.clear();
}

void Workers::Kick(int signal) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Worker& worker : all_) ::pthread_kill(worker.thread_.native_handle(), signal);
}

int Workers::ReadingCount(const Worker* except) const {
  return static_cast<int>(std::count_if(all_.begin(), all_.end(), [except](const Worker& worker) {
    return &worker != except && !worker.gone_.load() && worker.reading();
  }));
}

bool Workers::MayLeave(const Worker& worker) const {
  if (!worker.extra_) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  return ReadingCount(&worker) >= threads_;
}

int Workers::MayWaitCount() const {
  return static_cast<int>(std::count_if(all_.begin(), all_.end(), [](const Worker& worker) {
    return worker.may_wait_.load() && !worker.gone_.load();
  }));
}

// A request that is put aside is never forgotten: nearly all workers then have such requests, and
// each looks for parked ones when it has answered.
bool Workers::MustPark(Worker& worker) const {
  worker.may_wait_.store(true);
  if (working_.load() < kMaxWorkers) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (MayWaitCount() < kMaxWorkers) return false;
  worker.may_wait_.store(false);
  return true;
}

void Workers::Park(std::string request) {
  const std::lock_guard<std::mutex> lock(mutex_);
  parked_.push_back(std::move(request));
  parked_count_.fetch_add(1);
}

bool Workers::TakeParked(Worker& worker, std::string* request) {
  if (parked_count_.load() == 0) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  worker.may_wait_.store(true);
  if (parked_.empty() || MayWaitCount() >= kMaxWorkers) {
    worker.may_wait_.store(false);
    return false;
  }
  *request = std::move(parked_.front());
  parked_.pop_front();
  parked_count_.fetch_sub(1);
  return true;
}

void Workers::Watch() {
  std::vector<std::pair<const Worker*, uint64_t>> before;
  while (!left_.WaitFor(kLookEvery)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto worker = all_.begin(); worker != all_.end();) {
      if (!worker->extra_ || !worker->gone_.load()) {
        ++worker;
        continue;
      }
      worker->thread_.join();
      worker = all_.erase(worker);
    }
    std::vector<std::pair<const Worker*, uint64_t>> now;
    bool held_up = true;
    for (const Worker& worker : all_) {
      if (worker.gone_.load()) continue;
      now.emplace_back(&worker, worker.state_.load());
      if (worker.reading()) held_up = false;
    }
    held_up = held_up && now == before;
    before = std::move(now);
    int add = held_up ? std::min<int>(
                            kMaxWorkers - working_.load(),
                            (kGrowth - 1) * threads_ * std::max<int>(1, working_.load() / threads_))
                      : 0;
    for (; add > 0; --add) {
      int working = working_.load();
      // No worker is started once the last one has left, or is about to leave.
      while (working > 0 && !working_.compare_exchange_weak(working, working + 1)) {
      }
      if (working <= 0) break;
      try {
        StartOne(/*extra=*/true);
      } catch (const std::system_error& error) {
        all_.pop_back();
        working_.fetch_sub(1);  // the workers that are held up still count
        if (!std::exchange(no_threads_logged_, true)) {
          SLOG_WARN("{} workers wait for the disk, and no more can be started: {}", working,
                    error.what());
        }
        break;
      }
    }
  }
}

}  // namespace salius
