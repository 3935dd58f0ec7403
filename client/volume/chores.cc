#include "client/volume/chores.h"

#include <utility>

namespace salius {

Chores::Chores() : thread_([this] { Work(); }) {}

Chores::~Chores() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  added_.notify_all();
  thread_.join();
}

void Chores::Do(std::function<void()> chore) {
  const std::lock_guard<std::mutex> lock(mutex_);
  chores_.push_back(std::move(chore));
  added_.notify_one();
}

void Chores::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    added_.wait(lock, [this] { return stopping_ || !chores_.empty(); });
    if (chores_.empty()) return;
    const std::function<void()> chore = std::move(chores_.front());
    chores_.pop_front();
    lock.unlock();
    chore();
    lock.lock();
  }
}

}  // namespace salius
