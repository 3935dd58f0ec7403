// The records that are kept back, to send several at once (docs/protocol.md). The only place that
// decides when they leave.
//
// pure: no thread, lock, socket or clock. Times are the primary's monotonic clock, in ns.
#pragma once

#include <cstdint>

#include "client/session/send_when.h"
#include "client/session/window.h"
#include "common/ids.h"

namespace salius {

// Returns the most records under way with which each is sent at once, on a host with `cpus` CPUs:
// more writers gain by sending together.
Seq FewRecords(int64_t cpus);

// The limits of what is kept back while no caller waits.
struct GatherBounds {
  uint64_t bytes = 56u << 10;  // about a large datagram
  int64_t ns = 1'000'000;
};

// Returns the bounds where records wait for an output (trigger=output): a quarter of a megabyte, or
// five seconds; less with a small log, or if records must be on the disk within a short `tau_ns`.
GatherBounds OutputTriggered(uint64_t log_max_bytes, int64_t tau_ns);

class Gathering {
 public:
  // `window`: outlives this object. `few`: with at most this many records under way, now and
  // lately, SendWhen::kSoon is like kNow.
  Gathering(Window& window, Seq few, GatherBounds bounds = {})
      : window_(window), few_(few), bounds_(bounds) {}

  // Takes the record that the window has got last.
  void Issued(int64_t now, Seq durable);
  // Decides whether the records gathered so far are sent, because one of them is to be sent as
  // `when` says. True: now they may be, all of them.
  bool Release(int64_t now, SendWhen when, Seq durable);
  // Releases them when they have waited for long enough.
  void ReleaseLate(int64_t now);

  // Takes the records up to `upto` as sent by another process.
  void Sent(int64_t now, Seq upto) { ReleaseUpTo(now, upto); }

  // Returns the last record that may be sent.
  Seq sendable() const { return sendable_; }
  // Returns whether a gathered record is to be sent soon: Release decides when `durable` moves.
  bool soon() const { return soon_; }
  // Returns when ReleaseLate releases records; INT64_MAX: there are none.
  int64_t late_ns() const;

 private:
  void ReleaseUpTo(int64_t now, Seq upto);

  Window& window_;
  const Seq few_;
  const GatherBounds bounds_;
  Seq sendable_ = 0;
  bool soon_ = false;     // send when the records sent before are durable
  int64_t since_ns_ = 0;  // when the first gathered record was issued
  // The in-flight peak: most records under way at once, in the last full period and in the present
  // one.
  Seq peak_before_ = 0, peak_ = 0;
};

}  // namespace salius
