// The floor under replication: m server processes and a client. A server answers every datagram
// with one as long as an acknowledgement; the client sends a payload to all and waits for f
// answers. No replication of a record to f of m machines over UDP can take less. Used by `salius
// bench` and by the FUSE floor in tests/bench.
//
// Each server is a process of its own, because waking a process is a part of the cost. It dies with
// the process that spawned it.
//
// Threads: EchoServers::Spawn forks, so call it before any thread is started. A QuorumPing belongs
// to one thread.
#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/file.h"

namespace salius::cli {

// Length of an answer: an acknowledgement frame without ranges (88 bytes of header, 56 of payload).
inline constexpr size_t kEchoAnswerBytes = 144;
// Largest payload of one exchange: it fits one datagram on loopback beside the ping's own header.
inline constexpr size_t kMaxPingBytes = 65000;

// Binds a UDP socket to the IPv4 address `host` and any free port, and sets `address` to both.
// INVALID_ARGUMENT when `host` is no IPv4 address.
absl::StatusOr<UniqueFd> BindUdp(const std::string& host, sockaddr_in* address);
inline absl::StatusOr<UniqueFd> BindLoopback(sockaddr_in* address) {
  return BindUdp("127.0.0.1", address);
}

// Returns the IPv4 addresses of servers given as HOST:PORT. Errors: INVALID_ARGUMENT for a server
// that has none; else the system's error of the look-up.
absl::StatusOr<std::vector<sockaddr_in>> ResolveEcho(absl::Span<const std::string> places);

// Answers every datagram with its first kEchoAnswerBytes bytes, after it has called `keep` with the
// datagram. Returns only on an error.
absl::Status ServeEcho(
    int fd, absl::FunctionRef<void(absl::Span<const uint8_t>)> keep = [](auto) {});

class EchoServers {
 public:
  // Starts `count` servers on loopback and returns when they can receive.
  static absl::StatusOr<EchoServers> Spawn(size_t count);

  absl::Span<const sockaddr_in> addresses() const { return addresses_; }

  EchoServers(EchoServers&& other) noexcept;
  EchoServers& operator=(EchoServers&&) = delete;
  ~EchoServers();  // kills them and waits for their end

 private:
  EchoServers() = default;
  std::vector<sockaddr_in> addresses_;
  std::vector<pid_t> children_;
};

class QuorumPing {
 public:
  // Connects to the servers at `addresses`; an exchange ends after `acks` answers. INVALID_ARGUMENT
  // when there are fewer servers than `acks`.
  static absl::StatusOr<QuorumPing> Connect(absl::Span<const sockaddr_in> addresses, size_t acks);

  // Start sends `payload` (at most kMaxPingBytes) to every server. Finish waits for `acks` answers
  // and sends again every 100 ms. Finish returns DEADLINE_EXCEEDED after two seconds without them.
  absl::Status Start(absl::Span<const uint8_t> payload);
  absl::Status Finish();
  absl::Status Exchange(absl::Span<const uint8_t> payload);
  // Exchanges a payload of any size, piece by piece, and calls `meanwhile` once, while the first
  // piece is in flight. Returns the first error.
  absl::Status ExchangeAll(absl::Span<const uint8_t> payload,
                           const std::function<absl::Status()>& meanwhile);

 private:
  struct Header {
    uint64_t number;  // of the exchange: a late answer to an earlier one does not count
    uint64_t server;
  };
  absl::Status SendToUnanswered(absl::Span<const uint8_t> payload);

  UniqueFd socket_;
  std::vector<sockaddr_in> addresses_;
  std::vector<bool> answered_;
  absl::Span<const uint8_t> payload_;
  size_t acks_ = 0;
  uint64_t number_ = 0;
};

}  // namespace salius::cli
