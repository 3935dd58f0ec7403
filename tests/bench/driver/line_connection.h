// A TCP connection to a server that answers in lines ended by CRLF (Redis, NATS), for one thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file.h"

namespace salius::bench {

class LineConnection {
 public:
  // Connects to "host:port", without Nagle's delay.
  static absl::StatusOr<LineConnection> Connect(const std::string& address);

  // Sends everything, in one call if the kernel accepts it.
  absl::Status Send(std::string_view bytes);
  // Returns the next line, without its end. Waits without bound; UNAVAILABLE when the server hangs
  // up.
  absl::StatusOr<std::string> ReadLine();

 private:
  explicit LineConnection(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::string received_;  // not yet read
};

}  // namespace salius::bench
