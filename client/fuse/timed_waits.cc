#include "client/fuse/timed_waits.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/check.h"
#include "common/clock.h"
#include "common/file.h"

namespace salius {
namespace {

constexpr int64_t kLongest = int64_t{1} << 62;  // beyond that the sum could overflow

}  // namespace

TimedWaits::~TimedWaits() {
  std::thread thread;
  {
    absl::MutexLock lock(&mutex_);
    SALIUS_CHECK(waits_.empty(), "waits are left");
    stop_ = true;
    changed_.SignalAll();
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
}

void TimedWaits::Run(Seq seq, int64_t timeout_ns, DurableCallback answer,
                     absl::FunctionRef<void()> start) {
  bool first = false;
  {
    absl::MutexLock lock(&mutex_);
    const int64_t end = SystemClock().MonotonicNanos() + std::min(timeout_ns, kLongest);
    const auto wait = waits_.emplace(end, Wait{seq, std::move(answer)});
    const auto [of_seq, inserted] = by_seq_.try_emplace(seq);
    of_seq->second.push_back(wait);
    first = inserted;
    if (!thread_.joinable()) thread_ = std::thread([this] { Expire(); });
    if (wait == waits_.begin()) changed_.SignalAll();
  }
  if (first) start();
}

void TimedWaits::End(Seq seq, const absl::Status& outcome) {
  std::vector<DurableCallback> answers;
  {
    absl::MutexLock lock(&mutex_);
    const auto of_seq = by_seq_.find(seq);
    SALIUS_CHECK(of_seq != by_seq_.end(), "no wait was started");
    for (const ByTime::iterator& wait : of_seq->second) {
      answers.push_back(std::move(wait->second.answer));
      waits_.erase(wait);
    }
    by_seq_.erase(of_seq);
    ++answering_;
  }
  for (DurableCallback& answer : answers) std::move(answer)(outcome);
  absl::MutexLock lock(&mutex_);
  --answering_;
}

void TimedWaits::AwaitIdle() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* answering) { return *answering == 0; }, &answering_));
}

void TimedWaits::Expire() {
  const absl::Status timed_out = ErrnoStatus(ETIMEDOUT, "not durable yet");
  mutex_.Lock();
  while (!stop_) {
    if (waits_.empty()) {
      changed_.Wait(&mutex_);
      continue;
    }
    const auto first = waits_.begin();
    const int64_t left = first->first - SystemClock().MonotonicNanos();
    if (left > 0) {
      changed_.WaitFor(&mutex_, left);
      continue;
    }
    by_seq_.find(first->second.seq)->second.remove(first);
    DurableCallback answer = std::move(first->second.answer);
    waits_.erase(first);
    ++answering_;
    mutex_.Unlock();
    std::move(answer)(timed_out);
    mutex_.Lock();
    --answering_;
  }
  mutex_.Unlock();
}

}  // namespace salius
