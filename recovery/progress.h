// The progress bar of salius-recover: one line on stderr, drawn again at most ten times a second.
//
// Threads: not thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "common/clock.h"
#include "recovery/recovery.h"

namespace salius::recovery {

// Returns the line for one state of progress, without control characters, for example
// "collect [####....] 50% 10 of 20 MiB".
std::string ProgressLine(const RecoveryProgress& progress);

class ProgressBar {
 public:
  // `enabled` false: draws nothing.
  ProgressBar(bool enabled, Clock& clock) : enabled_(enabled), clock_(clock) {}
  void Show(const RecoveryProgress& progress);
  // Removes the line, before anything else is printed.
  void Clear();

 private:
  const bool enabled_;
  Clock& clock_;
  int64_t next_ns_ = 0;
  std::string phase_;
  bool drawn_ = false;
};

}  // namespace salius::recovery
