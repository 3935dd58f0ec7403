#include "client/fuse/page_invalidator.h"

#include <utility>

#include "client/fuse/kernel_order.h"

namespace salius {

PageInvalidator::~PageInvalidator() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void PageInvalidator::SetNotify(Notify notify) {
  notify_ = std::move(notify);
  absl::MutexLock lock(&mutex_);
  threads_.push_back(start_([this] { Work(); }));
}

void PageInvalidator::Run(uint64_t nodeid, uint64_t offset, uint64_t length,
                          std::function<void()> then) {
  absl::MutexLock lock(&mutex_);
  tasks_.push_back({nodeid, offset, length, std::move(then)});
  ++pending_;
  if (tasks_.size() > idle_ && threads_.size() < kMaxThreads) {
    AddThread(threads_, [this] { Work(); }, start_);
  }
}

void PageInvalidator::AwaitIdle() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](size_t* pending) { return *pending == 0; }, &pending_));
}

void PageInvalidator::Work() {
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      ++idle_;
      mutex_.Await(absl::Condition(
          +[](PageInvalidator* self) {
            self->mutex_.AssertHeld();
            return self->stop_ || !self->tasks_.empty();
          },
          this));
      --idle_;
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    KernelOrder::Begin(task.nodeid);
    notify_(task.nodeid, task.offset, task.length);
    task.then();
    absl::MutexLock lock(&mutex_);
    --pending_;
  }
}

}  // namespace salius
