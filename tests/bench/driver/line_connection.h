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
  // To "host:port", without Nagle's delay.
  static absl::StatusOr<LineConnection> Connect(const std::string& address);

  // Everything, in one call where the kernel takes it.
  absl::Status Send(std::string_view bytes);
  // The next line, without its end. Waits as long as it takes; UNAVAILABLE when the server hangs
  // up.
  absl::StatusOr<std::string> ReadLine();

 private:
  explicit LineConnection(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::string received_;  // not yet read
};

}  // namespace salius::bench
