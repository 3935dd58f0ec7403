// What `salius bench` measures: things that are done again and again for the length of a round,
// each time by the clock. A run takes its targets in turn, round by round, so that whatever else
// the machine does falls on all of them alike.
//
// Threads: one per writer within Round(); a target is used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/echo.h"
#include "client/cli/latency.h"
#include "common/file.h"

namespace salius::cli {

class Target {
 public:
  virtual ~Target() = default;
  virtual absl::StatusOr<LatencySummary> Round(int64_t length_ns) = 0;
};

// Synchronous writes to files of its own in a directory, one file per writer, removed at the end.
class WriteTarget : public Target {
 public:
  struct Plan {
    uint64_t size = 4096;  // bytes per write
    uint64_t writers = 1;
    uint64_t span = 16 << 20;  // bytes of each file that are overwritten in a circle
    bool append = false;       // grow the file instead; each round starts with an empty one
  };
  // Makes the files and, unless appending, writes their whole span, so that a round only
  // overwrites. The files are opened with O_SYNC from the start: a mount may decide by the first
  // open handle.
  static absl::StatusOr<std::unique_ptr<WriteTarget>> Make(const std::string& directory, Plan plan);
  ~WriteTarget() override;

  absl::StatusOr<LatencySummary> Round(int64_t length_ns) override;

 private:
  struct Writer {
    std::string path;
    UniqueFd fd;
    uint64_t position = 0;
    std::vector<uint64_t> samples_ns;
    absl::Status status;
  };
  explicit WriteTarget(Plan plan) : plan_(plan), data_(plan.size, 'x') {}
  absl::Status Prepare(Writer& writer) const;
  void RunWriter(Writer& writer, int64_t end_ns) const;

  Plan plan_;
  std::vector<char> data_;
  std::vector<Writer> writers_;
};

// The raw floor of replication: a datagram with the payload to every echo server, answers of
// `acks`.
class PingTarget : public Target {
 public:
  PingTarget(QuorumPing ping, uint64_t size) : ping_(std::move(ping)), data_(size, 'x') {}
  absl::StatusOr<LatencySummary> Round(int64_t length_ns) override;

 private:
  QuorumPing ping_;
  std::vector<uint8_t> data_;
};

}  // namespace salius::cli
