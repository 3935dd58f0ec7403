// Decides which connections a server keeps, so that connections neither take the descriptors that the
// process needs for its own work, nor one host all of those for the others.
//
// gRPC owns an accepted connection and does not say when it ends. So this remembers the descriptor and
// the kernel's number of each socket (SO_COOKIE, never used twice). When a bound is reached, it asks
// which of them are still open.
//
// pure: no thread, lock, socket or clock. Times are monotonic nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace salius {

class ConnectionLimits {
 public:
  struct Bounds {
    size_t total = 0;
    size_t per_host = 0;
  };
  // An idle connection costs some ten KiB of memory.
  static constexpr size_t kMost = 65'536;
  // Descriptors that are left for files, epoll instances, metrics and 64 multicast groups.
  static constexpr size_t kReserve = 256;
  // One host may have 1/kHostShare of the connections: a host that floods leaves most to others.
  static constexpr size_t kHostShare = 4;
  // Shortest time between two looks at which connections are open.
  static constexpr int64_t kLookNs = 250'000'000;

  // Returns the bounds of a process that may have `descriptors` open files: at most kMost
  // connections, and at least kReserve or half of the descriptors without a connection.
  static Bounds BoundsFor(uint64_t descriptors);

  // Returns whether descriptor `fd` is still the socket with this cookie.
  using IsOpen = std::function<bool(int fd, uint64_t cookie)>;
  enum class Verdict { kAdmitted, kHostHasItsShare, kAllAreTaken };

  ConnectionLimits(const Bounds& bounds, IsOpen is_open)
      : bounds_(bounds), is_open_(std::move(is_open)) {}

  // Counts a new connection of `host`, unless a bound is reached; then the caller closes it. A
  // connection that ended within the last kLookNs may still count.
  Verdict Admit(int64_t now_ns, int fd, uint64_t cookie, const std::string& host);

  const Bounds& bounds() const { return bounds_; }
  // Returns how many connections count.
  size_t size() const { return connections_.size(); }

 private:
  struct Connection {
    uint64_t cookie = 0;
    std::string host;
  };
  Verdict Judge(const std::string& host) const;
  // Forgets connections that have ended.
  void Look(int64_t now_ns);
  void Uncount(const std::string& host);

  const Bounds bounds_;
  const IsOpen is_open_;
  absl::flat_hash_map<int, Connection> connections_;  // by descriptor
  absl::flat_hash_map<std::string, size_t> of_host_;  // how many
  int64_t next_look_ns_ = 0;
};

}  // namespace salius
