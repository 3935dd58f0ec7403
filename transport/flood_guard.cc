#include "transport/flood_guard.h"

#include "common/log.h"
#include "common/strings.h"
#include "transport/flood_filter.h"

namespace salius {

FloodGuard::FloodGuard(DatagramChannel& channel, KeyRing& ring, bool notices, Clock& clock)
    : channel_(channel), ring_(ring), notices_(notices), clock_(clock) {
  ring_.Watch(this, [this] { KeysChanged(); });
}

FloodGuard::~FloodGuard() { ring_.Unwatch(this); }

void FloodGuard::Count(size_t refused) {
  const int64_t now_ns = clock_.MonotonicNanos();
  absl::MutexLock lock(&mutex_);
  if (cannot_) return;
  if (now_ns - begin_ns_ >= kWindowNs) EndWindow(now_ns);
  refused_ += refused;
  if (filters()) {
    if (now_ns - attached_ns_ >= kFollowsNs) Attach(now_ns);
  } else if (refused_ >= kBegins) {
    begin_ns_ = now_ns;
    refused_ = 0;
    dropped_ = channel_.dropped();
    Attach(now_ns);
    if (filters())
      SLOG_WARN("a flood of datagrams that are refused: the kernel drops most of them");
  }
}

void FloodGuard::EndWindow(int64_t now_ns) {
  if (filters()) {
    const uint32_t dropped = channel_.dropped();
    const uint32_t since = dropped - dropped_;
    ring_.CountFiltered(since);
    if (since + refused_ < kEnds) {
      static_cast<void>(channel_.SetFilter({}));
      filters_.store(false);
      SLOG_INFO("the flood of datagrams that are refused has ended");
    }
    dropped_ = dropped;
  }
  begin_ns_ = now_ns;
  refused_ = 0;
}

void FloodGuard::Attach(int64_t now_ns) {
  attached_ns_ = now_ns;
  const absl::Status set = channel_.SetFilter(FloodProgram(ring_.Rules(notices_)));
  filters_.store(set.ok());
  if (set.ok()) return;
  cannot_ = true;
  static_cast<void>(channel_.SetFilter({}));
  if (!absl::IsUnimplemented(set)) SLOG_WARN("no filter for datagrams: {}", Sv(set.message()));
}

void FloodGuard::KeysChanged() {
  if (!filters()) return;
  const int64_t now_ns = clock_.MonotonicNanos();
  absl::MutexLock lock(&mutex_);
  if (filters()) Attach(now_ns);
}

}  // namespace salius
