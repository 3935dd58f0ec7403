#include "client/volume/memory_return.h"

#include <utility>

#include "common/clock.h"
#include "common/deadline.h"

namespace salius {

MemoryReturn::MemoryReturn(uint64_t worth, std::chrono::nanoseconds calm, std::function<void()> give_back)
    : worth_(worth), calm_(calm), give_back_(std::move(give_back)), thread_([this] { Work(); }) {}

MemoryReturn::~MemoryReturn() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.Signal();
  }
  thread_.join();
}

void MemoryReturn::Wake() {
  absl::MutexLock lock(&mutex_);
  changed_.Signal();
}

bool MemoryReturn::AwaitCalm() {
  uint64_t before = 0;
  do {
    before = freed_.load();
    const Deadline end = Deadline::After(SystemClock(), calm_);
    while (!stopping_ && !end.Expired(SystemClock())) {
      changed_.WaitFor(&mutex_, end.RemainingNs(SystemClock()));
    }
  } while (!stopping_ && freed_.load() != before);
  return !stopping_;
}

void MemoryReturn::Work() {
  mutex_.Lock();
  while (!stopping_) {
    if (freed_.load() < worth_) {
      changed_.Wait(&mutex_);
    } else if (AwaitCalm()) {
      freed_.store(0);
      mutex_.Unlock();
      give_back_();
      mutex_.Lock();
    }
  }
  mutex_.Unlock();
}

}  // namespace salius
