#include "recovery/progress.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace salius::recovery {
namespace {

constexpr int64_t kRedrawNs = 100'000'000;
constexpr int kWidth = 30;

}  // namespace

std::string ProgressLine(const RecoveryProgress& progress) {
  std::string line = absl::StrFormat("%-8s", progress.phase);
  const bool mebibytes = progress.unit == "bytes";
  const uint64_t divisor = mebibytes ? uint64_t{1} << 20 : 1;
  const std::string_view unit = mebibytes ? "MiB" : progress.unit;
  if (progress.total > 0) {
    const uint64_t done = progress.done < progress.total ? progress.done : progress.total;
    const double part = static_cast<double>(done) / static_cast<double>(progress.total);
    const int filled = static_cast<int>(part * kWidth);
    absl::StrAppendFormat(&line, " [%s%s] %3d%% %d of %d %s", std::string(filled, '#'),
                          std::string(kWidth - filled, '.'), static_cast<int>(part * 100),
                          progress.done / divisor, progress.total / divisor, unit);
  } else if (progress.done > 0) {
    absl::StrAppendFormat(&line, " %d %s", progress.done / divisor, unit);
  }
  return line;
}

void ProgressBar::Show(const RecoveryProgress& progress) {
  if (!enabled_) return;
  const int64_t now = clock_.MonotonicNanos();
  if (phase_ == progress.phase && now < next_ns_) return;
  phase_ = std::string(progress.phase);
  next_ns_ = now + kRedrawNs;
  drawn_ = true;
  const std::string line = ProgressLine(progress);
  std::fprintf(stderr, "\r%s\033[K", line.c_str());
}

void ProgressBar::Clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

}  // namespace salius::recovery
