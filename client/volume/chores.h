// A thread for work that may wait for the disk and whose result no caller awaits: the removal of
// closed files' hidden links.
//
// Threads: any may call Do.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace salius {

class Chores {
 public:
  Chores();
  // Does the chores that are left, then ends the thread.
  ~Chores();
  Chores(const Chores&) = delete;
  Chores& operator=(const Chores&) = delete;

  // Has `chore` done, after those before it. It must not add another.
  void Do(std::function<void()> chore);

 private:
  void Work();

  std::mutex mutex_;  // guards what follows; never held over a chore
  std::condition_variable added_;
  std::deque<std::function<void()>> chores_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace salius
