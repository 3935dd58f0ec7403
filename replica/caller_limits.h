// Limits of the calls of each identity, so that one cannot take the control port from the others:
// calls in a second, and connections in a minute. Memory, places and promises have the bound
// --peer-share (rule J of replica/acceptor.h), and owned volumes that of replica/owner_book.h.
//
// pure: no thread, lock, socket or clock. Times are monotonic nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace salius {

class CallerLimits {
 public:
  struct Options {
    // A host with a hundred volumes makes some ten calls a second when all of them reconnect.
    uint32_t calls_per_s = 200;
    uint32_t calls_at_once = 2000;
    uint32_t connections = 2000;  // In kWindowNs; a volume's check of the port makes a new one.
    size_t callers = 4096;        // That are remembered; the one that called least recently goes.
  };
  static constexpr int64_t kWindowNs = 60'000'000'000;

  CallerLimits() : CallerLimits(Options()) {}
  explicit CallerLimits(const Options& options) : options_(options) {}

  // Counts a call of an identity from an address with its port. RESOURCE_EXHAUSTED: it exceeds a
  // limit, and was not counted.
  absl::Status Admit(int64_t now_ns, const std::string& identity, const std::string& address);
  size_t size() const { return callers_.size(); }

 private:
  struct Caller {
    double calls = 0;  // That it may make at once.
    int64_t last_ns = 0;
    absl::flat_hash_map<std::string, int64_t> connections;  // When each was used last.
  };
  Caller& Find(int64_t now_ns, const std::string& identity);

  const Options options_;
  absl::flat_hash_map<std::string, Caller> callers_;
};

}  // namespace salius
