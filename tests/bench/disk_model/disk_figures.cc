// A disk's own figures: sequential and random requests, one and 32 at a time.
//
//   disk_figures [--each-ms N] [--seed N] DEVICE
//
// It writes to DEVICE, so its content is lost. The page cache is bypassed. Prints one line for
// each of eight measurements, in this order:
//
//   read|write sequential|random DEPTH BYTES REQUESTS_PER_SECOND
//
// Sequential requests have 128 KiB and random ones 4 KiB. With DEPTH threads there are DEPTH
// requests outstanding, one of each at least; in a sequential run each thread takes the next place.
//
// Exit status: 0 all was measured, 1 a request failed, 2 wrong usage.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/options.h"

namespace {

constexpr size_t kAlignment = 4096;

struct Pattern {
  bool write;
  bool random;
  unsigned depth;
  size_t bytes;
};

constexpr Pattern kPatterns[] = {
    {false, false, 1, 131072}, {false, false, 32, 131072}, {false, true, 1, 4096}, {false, true, 32, 4096},
    {true, false, 1, 131072},  {true, false, 32, 131072},  {true, true, 1, 4096},  {true, true, 32, 4096},
};

class Measurement {
 public:
  Measurement(int fd, uint64_t disk_bytes, int64_t wanted_ns, uint64_t seed)
      : fd_(fd), disk_bytes_(disk_bytes), wanted_ns_(wanted_ns), seed_(seed) {}

  // Returns requests per second; a negative number when a request failed (printed).
  double Run(const Pattern& pattern) {
    next_ = 0;
    done_ = 0;
    failed_ = false;
    const int64_t began_ns = salius::SystemClock().MonotonicNanos();
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < pattern.depth; ++i) {
      threads.emplace_back([this, &pattern, i, began_ns] { Work(pattern, i, began_ns); });
    }
    for (std::thread& thread : threads) thread.join();
    const int64_t took_ns = salius::SystemClock().MonotonicNanos() - began_ns;
    return failed_ ? -1 : static_cast<double>(done_) / (static_cast<double>(took_ns) / 1e9);
  }

 private:
  void Work(const Pattern& pattern, unsigned number, int64_t began_ns) {
    std::mt19937_64 random(seed_ * 64 + number);
    const uint64_t places = disk_bytes_ / pattern.bytes;
    void* const buffer = std::aligned_alloc(kAlignment, pattern.bytes);
    std::fill_n(static_cast<char*>(buffer), pattern.bytes, 'x');
    do {
      const uint64_t place = (pattern.random ? random() : next_++) % places;
      const off_t offset = static_cast<off_t>(place * pattern.bytes);
      const ssize_t moved = pattern.write ? pwrite(fd_, buffer, pattern.bytes, offset)
                                          : pread(fd_, buffer, pattern.bytes, offset);
      if (moved != static_cast<ssize_t>(pattern.bytes)) {
        std::perror(pattern.write ? "pwrite" : "pread");
        failed_ = true;
      }
      ++done_;
    } while (!failed_ && salius::SystemClock().MonotonicNanos() - began_ns < wanted_ns_);
    std::free(buffer);
  }

  const int fd_;
  const uint64_t disk_bytes_;
  const int64_t wanted_ns_;
  const uint64_t seed_;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> done_{0};
  std::atomic<bool> failed_{false};
};

}  // namespace

int main(int argc, char** argv) {
  salius::Options options("disk_figures", "DEVICE", "Measures a disk, whose content is lost.");
  uint64_t each_ms = 1000, seed = 1;
  options.Number("each-ms", "N", &each_ms, 1, 600'000, "milliseconds of each measurement");
  options.Number("seed", "N", &seed, 0, UINT64_MAX, "decides the random places");
  const absl::Status status = options.Parse(std::vector<std::string>(argv + 1, argv + argc), 1, 1);
  if (options.answer().has_value()) {
    std::fputs(options.answer()->c_str(), stdout);
    return EXIT_SUCCESS;
  }
  if (!status.ok()) {
    std::fprintf(stderr, "disk_figures: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  const int fd = open(options.places()[0].c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  uint64_t disk_bytes = 0;
  if (fd < 0 || ioctl(fd, BLKGETSIZE64, &disk_bytes) != 0) {
    std::perror(options.places()[0].c_str());
    return EXIT_FAILURE;
  }
  Measurement measurement(fd, disk_bytes, static_cast<int64_t>(each_ms) * 1'000'000, seed);
  for (const Pattern& pattern : kPatterns) {
    const double per_second = measurement.Run(pattern);
    if (per_second < 0) return EXIT_FAILURE;
    std::printf("%s %s %u %zu %.1f\n", pattern.write ? "write" : "read",
                pattern.random ? "random" : "sequential", pattern.depth, pattern.bytes, per_second);
  }
  return EXIT_SUCCESS;
}
