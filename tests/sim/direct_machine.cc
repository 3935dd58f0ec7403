#include "tests/sim/direct_machine.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/check.h"

namespace salius::sim {
namespace {

constexpr int64_t kUs = 1'000;
constexpr uint32_t kOwnerDied = 0x40000000;

DirectMachine* g_machine = nullptr;

// The futex word of a mutex: the owner's thread number, or the mark of its death.
uint32_t Word(const pthread_mutex_t* lock) { return static_cast<uint32_t>(lock->__data.__lock); }
void SetWord(pthread_mutex_t* lock, uint32_t word) { lock->__data.__lock = static_cast<int>(word); }

}  // namespace

DirectMachine::DirectMachine(uint64_t seed, uint64_t steps_per_switch)
    : random_(seed), steps_per_switch_(steps_per_switch) {
  SALIUS_CHECK(g_machine == nullptr);
  g_machine = this;
}

DirectMachine::~DirectMachine() { g_machine = nullptr; }

DirectMachine* DirectMachine::current() { return g_machine; }

// ---- time

void DirectMachine::At(int64_t delay, std::function<void()> what) {
  queue_.push_back({now_ + delay, order_++, nullptr, std::move(what)});
  std::push_heap(queue_.begin(), queue_.end(), Later());
}

void DirectMachine::Continue(Thread* thread, int64_t delay) {
  thread->turn = order_;
  queue_.push_back({now_ + delay, order_++, thread, nullptr});
  std::push_heap(queue_.begin(), queue_.end(), Later());
}

void DirectMachine::Run(int64_t until, const std::function<bool()>& done) {
  while (!queue_.empty() && queue_.front().time <= until) {
    if (done && done()) return;
    std::pop_heap(queue_.begin(), queue_.end(), Later());
    const Event event = std::move(queue_.back());
    queue_.pop_back();
    now_ = std::max(now_, event.time);
    if (event.thread == nullptr) {
      event.what();
      continue;
    }
    // An earlier event may have continued it, or it has died since.
    const auto thread = std::find_if(threads_.begin(), threads_.end(), [&](const Thread& each) {
      return &each == event.thread && each.turn == event.order;
    });
    if (thread == threads_.end()) continue;
    running_ = &*thread;
    running_died_ = false;
    thread->turn = UINT64_MAX;
    thread->fiber->Resume();
    running_ = nullptr;
    if (running_died_ || thread->fiber->ended()) {
      SALIUS_CHECK(running_died_ || thread->held.empty());
      threads_.erase(thread);
    }
  }
  if (!done || !done()) now_ = std::max(now_, until);
}

// ---- processes

void DirectMachine::Spawn(ProcessId process, std::function<void()> body) {
  Thread& thread = threads_.emplace_back();
  thread.process = process;
  thread.number = next_thread_++;
  thread.fiber = std::make_unique<Fiber>(std::move(body));
  Continue(&thread, static_cast<int64_t>(random_.Below(100 * kUs)));
}

bool DirectMachine::Lives(ProcessId process) const {
  return std::any_of(threads_.begin(), threads_.end(), [&](const Thread& thread) {
    return thread.process == process && !(&thread == running_ && running_died_);
  });
}

// Does what the kernel does at the death of a thread.
void DirectMachine::Bury(Thread& thread) {
  if (on_kill_) on_kill_(thread);
  for (pthread_mutex_t* const lock : thread.held) {
    SetWord(lock, kOwnerDied);
    Wake(lock, 1);
  }
  thread.held.clear();
  if (thread.waits_on != nullptr) std::erase(blocked_[thread.waits_on], &thread);
  // It may have been woken for a lock that it does not take any more.
  if (thread.wanted != nullptr) Wake(std::exchange(thread.wanted, nullptr), 1);
}

void DirectMachine::Kill(ProcessId process) {
  fates_.erase(process);
  for (auto thread = threads_.begin(); thread != threads_.end();) {
    const auto each = thread++;
    if (each->process != process) continue;
    Bury(*each);
    if (&*each == running_) {
      running_died_ = true;
    } else {
      threads_.erase(each);
    }
  }
  if (running_ != nullptr && running_died_) {
    Fiber::Yield();
    SALIUS_CHECK(false, "a dead thread runs");
  }
}

void DirectMachine::KillAfter(ProcessId process, uint64_t steps) { fates_[process] = {steps, 0}; }

void DirectMachine::StopAfter(ProcessId process, uint64_t steps, int64_t stop_ns) {
  fates_[process] = {steps, stop_ns};
}

// ---- the running thread

DirectMachine::Thread& DirectMachine::running() {
  SALIUS_CHECK(running_ != nullptr);
  return *running_;
}

// Returns how long a thread is suspended between two steps, or takes for a system call.
int64_t DirectMachine::Pause() {
  const uint64_t kind = random_.Below(100);
  const int64_t most = kind < 60   ? 3 * kUs
                       : kind < 90 ? 100 * kUs
                       : kind < 98 ? 2000 * kUs
                                   : 20'000 * kUs;
  return 200 + static_cast<int64_t>(random_.Below(static_cast<uint64_t>(most)));
}

void DirectMachine::Step() {
  if (running_ == nullptr) return;
  if (!fates_.empty()) {
    const auto fate = fates_.find(running_->process);
    if (fate != fates_.end() && fate->second.steps_left-- == 0) {
      const int64_t stop_ns = fate->second.stop_ns;
      fates_.erase(fate);
      if (stop_ns == 0) Kill(running_->process);
      Sleep(stop_ns);
    }
  }
  if (--switch_in_ > 0) return;
  switch_in_ = 1 + random_.Below(2 * steps_per_switch_);
  Sleep(Pause());
}

void DirectMachine::Sleep(int64_t ns) {
  Continue(running_, ns);
  Fiber::Yield();
}

bool DirectMachine::Block(const void* what, int64_t ns, uint32_t bits) {
  Thread& self = *running_;
  self.woken = false;
  self.waits_on = what;
  self.bits = bits;
  blocked_[what].push_back(&self);
  if (ns < kForever) Continue(&self, ns);
  Fiber::Yield();
  if (!self.woken) std::erase(blocked_[what], &self);
  self.waits_on = nullptr;
  return self.woken;
}

int DirectMachine::Wake(const void* what, int count, uint32_t bits) {
  const auto found = blocked_.find(what);
  if (found == blocked_.end()) return 0;
  int woken = 0;
  std::erase_if(found->second, [&](Thread* thread) {
    if (woken >= count || (thread->bits & bits) == 0) return false;
    ++woken;
    thread->woken = true;
    thread->waits_on = nullptr;
    Continue(thread, 200 + static_cast<int64_t>(random_.Below(60 * kUs)));
    return true;
  });
  return woken;
}

// ---- locks

int DirectMachine::TryLock(pthread_mutex_t* lock) {
  Step();
  const uint32_t word = Word(lock);
  if (word != 0 && word != kOwnerDied) return EBUSY;
  SetWord(lock, running_->number);
  running_->held.push_back(lock);
  return word == 0 ? 0 : EOWNERDEAD;
}

int DirectMachine::Lock(pthread_mutex_t* lock) {
  running_->wanted = lock;
  for (;;) {
    const int error = TryLock(lock);
    if (error != EBUSY) {
      running_->wanted = nullptr;
      return error;
    }
    SALIUS_CHECK(Word(lock) != running_->number, "a thread waits for its own lock");
    Block(lock, kForever);
  }
}

int DirectMachine::Unlock(pthread_mutex_t* lock) {
  if (running_ == nullptr) return 0;  // an object of a dead process is destroyed
  Step();
  SALIUS_CHECK(Word(lock) == running_->number, "a thread unlocks another one's lock");
  SetWord(lock, 0);
  std::erase(running_->held, lock);
  Wake(lock, 1);
  return 0;
}

}  // namespace salius::sim
