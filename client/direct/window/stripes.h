// The stripes: robust locks, each for the files with the same index mod stripes. A write holds its
// file's stripe from before the write until its records are complete. So a stripe tells, at the
// owner's death, that its file may have bytes that were not logged, and that a record of its files
// that is not complete never will be.
//
// Needs the standard library and POSIX only.
#pragma once

#include "client/direct/window/file_table.h"
#include "client/direct/window/layout.h"
#include "client/direct/window/robust_lock.h"

namespace salius::direct {

// Takes the stripe of `file`. If its owner is dead, the file that the owner had becomes uncovered.
void TakeStripe(const SharedWindow& window, uint32_t file);
// Does the same without waiting. Returns false when a living process has it.
bool TryTakeStripe(const SharedWindow& window, uint32_t file);
void GiveStripe(const SharedWindow& window, uint32_t file);

// Takes and gives back every stripe, as far as living processes do not hold them: dead owners are
// noticed. Returns the number of stripes that were held. Never waits.
uint32_t VisitStripes(const SharedWindow& window);

class StripeLock {
 public:
  StripeLock(const SharedWindow& window, uint32_t file) : window_(window), file_(file) {
    TakeStripe(window_, file_);
  }
  ~StripeLock() { GiveStripe(window_, file_); }
  StripeLock(const StripeLock&) = delete;
  StripeLock& operator=(const StripeLock&) = delete;

 private:
  const SharedWindow window_;
  const uint32_t file_;
};

}  // namespace salius::direct
