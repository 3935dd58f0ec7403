// Threads for work that waits for the disk, behind an interface: threads here, a drawn order in the
// simulator.
//
// Threads: any may call Run.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "client/volume/elevator.h"
#include "common/threads.h"

namespace salius {

class LaneWorkers {
 public:
  virtual ~LaneWorkers() = default;
  // Has `work` done, on another thread, beside other work and in any order. `place`: where on the disk.
  virtual void Run(const WorkPlace& place, std::function<void()> work) = 0;
  // Waits until the work under way has ended, and drops the rest. Later work is dropped too.
  virtual void Stop() = 0;
};

// Returns workers that begin their work in the order of Elevator, on at most `most` threads. The
// first one is started at once. Another is started when there is work and none is idle; if it cannot
// be, those that there are do the work.
std::unique_ptr<LaneWorkers> MakeLaneWorkers(size_t most, ThreadStarter start = StartThread);

}  // namespace salius
