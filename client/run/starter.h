// Starts the command of a salius-run whose other threads have given up capabilities.
//
// Linux keeps capabilities per thread. The thread made here keeps those that the process had, so that
// the command gets them, and so does the supervisor of its outputs, which it starts.
//
// Threads: one caller.
#pragma once

#include <functional>
#include <thread>

#include "absl/synchronization/notification.h"

namespace salius::run {

class Starter {
 public:
  Starter();
  // Ends the thread.
  ~Starter();
  Starter(const Starter&) = delete;
  Starter& operator=(const Starter&) = delete;

  // Runs `start` on the thread, and returns after it. Call it once at most.
  void Run(std::function<void()> start);

 private:
  std::function<void()> start_;  // before asked_
  absl::Notification asked_;
  std::thread thread_;
};

}  // namespace salius::run
