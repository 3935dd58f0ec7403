// How long a disk takes for each request. Pure: no thread and no clock inside; times are nanoseconds
// of any clock that the caller chooses. The same requests at the same times give the same answers.
//
// Threads: the caller locks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace salius::disk {

enum class Call { kRead, kWrite, kFlush };

struct Request {
  uint64_t id = 0;
  Call call = Call::kRead;
  uint64_t offset = 0;  // in bytes; 0 for a flush
  uint64_t bytes = 0;   // 0 for a flush
};

class Model {
 public:
  virtual ~Model() = default;
  // Takes a request. `now_ns` is never earlier than in the call before.
  virtual void Submit(int64_t now_ns, const Request& request) = 0;
  // Returns when the next request ends, if no other comes before; none: nothing is outstanding.
  virtual std::optional<int64_t> NextEnd() const = 0;
  // Returns the ids of those that have ended by now, in that order.
  virtual std::vector<uint64_t> TakeEnded(int64_t now_ns) = 0;
};

// Every request takes the same time, one after another; a read or write may take none.
struct FixedDisk {
  int64_t read_ns = 0;
  int64_t write_ns = 0;
  int64_t flush_ns = 8'000'000;
};

// A rotating disk without a write cache. Up to `queue` of the oldest requests are served in the order
// of the least time to reach them. A read that goes on where the last one ended finds what has passed
// under the head since, as long as the head did not move (`look_ahead`). A flush ends when all that
// came before it have ended.
struct RotatingDisk {
  uint64_t disk_bytes = uint64_t{500} << 30;
  int64_t rotation_ns = 8'333'333;     // 7200 a minute
  uint64_t track_bytes = 1u << 20;     // 120 MiB/s
  int64_t settle_ns = 800'000;         // to the next track
  int64_t full_seek_ns = 16'000'000;   // from the first track to the last
  int64_t overhead_ns = 100'000;       // of every request, at the interface
  uint64_t look_ahead = 2u << 20;      // bytes
  int64_t patience_ns = 1'000'000'000; // a request that waited longer is the next one
  unsigned queue = 32;
};

// A disk of flash memory: pages of 4 KiB, each read or written by one of `units` at a time. A flush
// ends when all that came before it have ended.
struct FlashDisk {
  int64_t read_ns = 90'000;
  int64_t write_ns = 30'000;
  unsigned units = 8;
};

std::unique_ptr<Model> MakeModel(const FixedDisk& disk);
// `seed` decides where head and platter are at first.
std::unique_ptr<Model> MakeModel(const RotatingDisk& disk, uint64_t seed);
std::unique_ptr<Model> MakeModel(const FlashDisk& disk);

}  // namespace salius::disk
