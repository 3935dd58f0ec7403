// Ends a drain that does not end alone: the volume then stays open and must be recovered.
//
// The length of a drain depends on how much plain data waits for the disk. So the bound is on the
// time without any progress. Because other programs may use the same disk, the total is bounded
// too.
//
// Threads: its own thread looks and gives up; one thread makes and destroys it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "common/event.h"

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
  // Ends the watch: the drain has ended. Waits for `give_up` if that runs.
  ~DrainWatchdog();
  DrainWatchdog(const DrainWatchdog&) = delete;
  DrainWatchdog& operator=(const DrainWatchdog&) = delete;

 private:
  void Watch();

  const Options options_;
  Event done_;
  std::thread thread_;
};

// Returns how many writes and flushes block device `device` (a file's st_dev) has completed. Always
// 0 for a file system that is not on one device.
uint64_t WrittenSoFar(dev_t device);

}  // namespace salius
