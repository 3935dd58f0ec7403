#include "client/run/starter.h"

#include <utility>

namespace salius::run {

Starter::Starter()
    : thread_([this] {
        asked_.WaitForNotification();
        if (start_) start_();
      }) {}

Starter::~Starter() {
  if (!asked_.HasBeenNotified()) asked_.Notify();
  if (thread_.joinable()) thread_.join();
}

void Starter::Run(std::function<void()> start) {
  start_ = std::move(start);
  asked_.Notify();
  thread_.join();
}

}  // namespace salius::run
