// Notices that this process was stopped, because a Tick comes long after it was due. It could not
// receive answers either, among them "you are fenced" (I4). So replicas get their time to answer
// again. That happens a few times only, so that a process that is always late still goes to mode
// local.
//
// pure: no thread, lock, socket or clock. Times are the primary's monotonic clock, in ns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/ids.h"

namespace salius {

class LateTicks {
 public:
  // `late_ns`: a Tick that is later than this, and than kLate, shows a stop.
  LateTicks(int64_t now, int64_t late_ns) : late_ns_(std::max(late_ns, kLate)), due_ns_(now) {}

  // Takes a Tick. `durable`: the durable watermark.
  void Take(int64_t now, Seq durable) {
    if (now - due_ns_ <= late_ns_) return;
    const bool on_time = due_ns_ - resumed_ns_ > kOnTime;
    if (std::exchange(resumed_at_, durable) != durable || on_time) resumes_ = 0;
    if (resumes_++ < kMaxResumes) resumed_ns_ = now;
  }
  // Notes when the next Tick is due.
  void Expect(int64_t due_ns) { due_ns_ = due_ns; }
  int64_t due_ns() const { return due_ns_; }
  // Returns the time of the last Tick that showed a stop and gave replicas their time again; 0:
  // none did.
  int64_t resumed_ns() const { return resumed_ns_; }

 private:
  static constexpr int64_t kLate = 20'000'000;
  static constexpr int kMaxResumes = 4;
  // A process that was on time for this long is not always late.
  static constexpr int64_t kOnTime = 10'000'000'000;

  const int64_t late_ns_;
  int64_t due_ns_;
  int64_t resumed_ns_ = 0;
  Seq resumed_at_ = 0;  // `durable` at the last late Tick
  int resumes_ = 0;     // late Ticks at that `durable`
};

}  // namespace salius
