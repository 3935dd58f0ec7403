// The result of replay, or of one part of it: done, or the reason why it cannot continue as planned.
//
// pure: no thread, lock, socket or clock.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/ids.h"

namespace salius::recovery {

class [[nodiscard]] ReplayResult {
 public:
  enum class Kind {
    kDone,
    kLeaveOut,  // the file system refuses a record for good: plan again without the record
    kNoRoom,    // the disk is full, even without the ballast: make room and begin again
    kStop,      // the run ends with the error
  };

  // Makes kDone of OK, kNoRoom of RESOURCE_EXHAUSTED, and kStop of any other error. Implicit, so
  // that the macros of common/check.h return a Status as a result.
  ReplayResult(absl::Status status)  // NOLINT(google-explicit-constructor)
      : kind_(status.ok()                         ? Kind::kDone
              : absl::IsResourceExhausted(status) ? Kind::kNoRoom
                                                  : Kind::kStop),
        status_(std::move(status)) {}

  // Makes kLeaveOut of record `seq`. `error` is the file system's, and not OK.
  static ReplayResult LeaveOut(absl::Status error, Seq seq) {
    ReplayResult result(std::move(error));
    SALIUS_CHECK(!result.done());
    result.kind_ = Kind::kLeaveOut;
    result.seq_ = seq;
    return result;
  }

  Kind kind() const { return kind_; }
  bool done() const { return kind_ == Kind::kDone; }
  // Returns the record to leave out; 0 for the other kinds.
  Seq seq() const { return seq_; }
  // Returns OK for kDone, and the error of the other kinds.
  const absl::Status& status() const { return status_; }

 private:
  Kind kind_;
  Seq seq_ = 0;
  absl::Status status_;
};

}  // namespace salius::recovery

// Returns the ReplayResult of the expression from this function unless it is done.
#define SALIUS_RETURN_UNLESS_DONE(...)                                                           \
  do {                                                                                           \
    if (::salius::recovery::ReplayResult salius_result = (__VA_ARGS__); !salius_result.done()) { \
      return salius_result;                                                                      \
    }                                                                                            \
  } while (false)
