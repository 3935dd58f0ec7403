// Checks whether a recovery could reach a replica. Records travel by UDP, but a recovery fences and
// fetches by the control port (gRPC over TCP), which a running session hardly uses. A firewall that
// drops TCP shows only when it is too late. So each replica that answers by UDP is asked from time
// to time by TCP, over a new connection, for its inventory.
//
// pure: no thread, lock, socket or clock. Times are monotonic ns.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace salius {

class ControlCheck {
 public:
  static constexpr int64_t kEveryNs = 10'000'000'000;
  static constexpr int64_t kAgainNs = 2'000'000'000;  // after a failure
  // One failure may be a restart.
  static constexpr int kFailures = 2;

  // Begins: the replica was opened, and is asked a while later.
  void Start(int64_t now) {
    failures_ = 0;
    answered_ns_ = now;
    at_ns_ = now + kEveryNs;
  }
  // Returns true once each time that the replica is to be asked; the outcome goes to Took.
  bool Due(int64_t now) {
    if (under_way_ || now < at_ns_) return false;
    under_way_ = true;
    return true;
  }
  // Takes the outcome of a question. Returns whether problem() has come or gone.
  bool Took(int64_t now, const absl::Status& outcome) {
    const bool before = failing();
    under_way_ = false;
    at_ns_ = now + (outcome.ok() ? kEveryNs : kAgainNs);
    if (outcome.ok()) {
      failures_ = 0;
      answered_ns_ = now;
    } else {
      failures_ = std::min(failures_ + 1, kFailures);
      why_ = std::string(outcome.message());
    }
    return failing() != before;
  }
  bool failing() const { return failures_ >= kFailures; }
  // Returns the problem; empty: a recovery would get an answer.
  std::string problem(int64_t now) const {
    if (!failing()) return "";
    return absl::StrCat("nothing could be recovered from it: its control port (TCP) has not "
                        "answered for ",
                        (now - answered_ns_) / 1'000'000'000, " s (", why_,
                        "); check firewalls between this host and it");
  }

 private:
  bool under_way_ = false;
  int failures_ = 0;
  int64_t at_ns_ = 0, answered_ns_ = 0;
  std::string why_;
};

}  // namespace salius
