// The targets that `salius bench` measures. A target repeats one operation for the length of a
// round and times each one. A run takes its targets in turn, round by round, so that other load on
// the machine falls on all of them alike.
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
#include "common/json.h"

namespace salius::cli {

// Returns a round's figures.
Json SummaryJson(const LatencySummary& summary);

class Target {
 public:
  virtual ~Target() = default;
  virtual absl::StatusOr<LatencySummary> Round(int64_t length_ns) = 0;
};

// Writers that each do one operation after the other.
class ClosedLoop : public Target {
 public:
  explicit ClosedLoop(size_t writers) : writers_(writers) {}
  absl::StatusOr<LatencySummary> Round(int64_t length_ns) final;

 protected:
  size_t writers() const { return writers_; }
  // Runs before a round; it is not measured.
  virtual absl::Status Prepare(size_t) { return absl::OkStatus(); }
  // Runs one operation, on the writer's own thread.
  virtual absl::Status Operate(size_t writer) = 0;

 private:
  struct alignas(64) Samples {  // no two writers on one cache line
    std::vector<uint64_t> ns;
    absl::Status status;
  };
  void Run(size_t writer, int64_t end_ns, Samples& samples);

  const size_t writers_;
};

// Writes (or reads) its own files in a directory, one file per writer, and removes them at the end.
class FileTarget : public ClosedLoop {
 public:
  struct Plan {
    uint64_t size = 4096;  // bytes per write
    uint64_t writers = 1;
    uint64_t span = 16 << 20;  // bytes of each file that are overwritten in a circle
    bool append = false;       // grow the file instead; each round starts with an empty one
    // 0: every write is O_SYNC. Otherwise one operation is this number of plain writes and one
    // fdatasync.
    uint64_t fsync_every = 0;
    bool plain = false;  // writes without any sync
    bool read = false;   // reads instead of writes

    bool o_sync() const { return fsync_every == 0 && !plain && !read; }
  };
  // Makes the files and, unless appending, writes their whole span, so that a round only
  // overwrites. With O_SYNC, opens the files so from the start: a mount may decide by the first
  // open handle.
  static absl::StatusOr<std::unique_ptr<FileTarget>> Make(const std::string& directory, Plan plan);
  ~FileTarget() override;

 protected:
  absl::Status Prepare(size_t writer) override;
  absl::Status Operate(size_t writer) override;

 private:
  struct File {
    std::string path;
    UniqueFd fd;
    uint64_t position = 0;
    std::vector<char> data;
  };
  explicit FileTarget(Plan plan) : ClosedLoop(plan.writers), plan_(plan), files_(plan.writers) {}
  absl::Status Fill(File& file) const;
  // Reads the file once, so that the page cache holds it as reads leave it. Writes may leave pages
  // of another size, according to the file system, and those are read at another speed.
  absl::Status ReadIn(File& file) const;

  const Plan plan_;
  std::vector<File> files_;
};

// The raw floor of replication: sends a datagram with the payload to every echo server and waits
// for `acks` answers. One writer per ping.
class PingTarget : public ClosedLoop {
 public:
  PingTarget(std::vector<QuorumPing> pings, uint64_t size)
      : ClosedLoop(pings.size()), pings_(std::move(pings)), data_(size, 'x') {}

 protected:
  absl::Status Operate(size_t writer) override { return pings_[writer].Exchange(data_); }

 private:
  std::vector<QuorumPing> pings_;
  std::vector<uint8_t> data_;
};

}  // namespace salius::cli
