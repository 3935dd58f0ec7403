// Ends a drain that cannot end by itself: the volume then stays open and will be recovered.
//
// How long one may take depends on how much plain data waits for the disk, so what is bounded is
// the time without any progress, and, as others may use the same disk, all of it.
//
// Threads: its own looks and gives up; made and destroyed by one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "client/fuse/event.h"

namespace salius {

class DrainWatchdog {
 public:
  struct Options {
    std::chrono::milliseconds idle;  // without progress
    std::chrono::milliseconds most;  // altogether
    // Changes while the disk works.
    std::function<uint64_t()> progress;
    // Called at most once, with the reason; may end the process.
    std::function<void(const std::string&)> give_up;
  };
  explicit DrainWatchdog(Options options);
  // It is drained; waits for `give_up` when that runs.
  ~DrainWatchdog();
  DrainWatchdog(const DrainWatchdog&) = delete;
  DrainWatchdog& operator=(const DrainWatchdog&) = delete;

 private:
  void Watch();

  const Options options_;
  Event done_;
  std::thread thread_;
};

// What block device `device` (a file's st_dev) has completed, writes and flushes. 0, always, for a
// file system that is not on one device.
uint64_t WrittenSoFar(dev_t device);

}  // namespace salius
