// Makes writes of this process fail with EFBIG while it lives: the nearest thing to a failing disk
// that needs no device. Writes that end at or below `limit` bytes of a file still work.
#ifndef SALIUS_TESTS_UNIT_LOG_FAIL_WRITES_H_
#define SALIUS_TESTS_UNIT_LOG_FAIL_WRITES_H_

#include <signal.h>
#include <sys/resource.h>

#include "common/check.h"

namespace salius {

class FailWrites {
 public:
  explicit FailWrites(rlim_t limit) {
    signal(SIGXFSZ, SIG_IGN);
    SALIUS_CHECK(getrlimit(RLIMIT_FSIZE, &saved_) == 0);
    rlimit lower = saved_;
    lower.rlim_cur = limit;
    SALIUS_CHECK(setrlimit(RLIMIT_FSIZE, &lower) == 0);
  }
  ~FailWrites() { SALIUS_CHECK(setrlimit(RLIMIT_FSIZE, &saved_) == 0); }

 private:
  rlimit saved_{};
};

}  // namespace salius

#endif  // SALIUS_TESTS_UNIT_LOG_FAIL_WRITES_H_
