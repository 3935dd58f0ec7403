#include "client/mount/drain_watchdog.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/clock.h"
#include "common/deadline.h"
#include "common/file.h"

namespace salius {
namespace {

// How often it looks, for each bound.
constexpr int kLooks = 60;

int64_t Seconds(std::chrono::milliseconds time) { return time.count() / 1000; }

}  // namespace

DrainWatchdog::DrainWatchdog(Options options)
    : options_(std::move(options)), thread_([this] { Watch(); }) {}

DrainWatchdog::~DrainWatchdog() {
  done_.Set();
  thread_.join();
}

void DrainWatchdog::Watch() {
  Clock& clock = SystemClock();
  const Deadline end = Deadline::After(clock, options_.most);
  Deadline idle_end = Deadline::After(clock, options_.idle);
  uint64_t before = options_.progress();
  const auto look = std::max(options_.idle / kLooks, std::chrono::milliseconds{1});
  while (!done_.WaitFor(look)) {
    if (end.Expired(clock)) {
      options_.give_up(absl::StrCat("not drained after ", Seconds(options_.most), " s"));
      return;
    }
    if (const uint64_t written = options_.progress(); written != before) {
      before = written;
      idle_end = Deadline::After(clock, options_.idle);
    } else if (idle_end.Expired(clock)) {
      options_.give_up(absl::StrCat("not drained, and nothing written to the disk for ",
                                    Seconds(options_.idle), " s"));
      return;
    }
  }
}

uint64_t WrittenSoFar(dev_t device) {
  // The kernel's Documentation/block/stat.rst.
  constexpr size_t kWrites = 4;
  constexpr size_t kFlushes = 15;
  const absl::StatusOr<std::string> text =
      ReadWholeFile(absl::StrFormat("/sys/dev/block/%d:%d/stat", major(device), minor(device)));
  if (!text.ok()) return 0;
  const std::vector<std::string> fields = absl::StrSplit(*text, ' ', absl::SkipWhitespace());
  uint64_t sum = 0;
  for (const size_t field : {kWrites, kFlushes}) {
    uint64_t count = 0;
    if (field < fields.size() && absl::SimpleAtoi(fields[field], &count)) sum += count;
  }
  return sum;
}

}  // namespace salius
