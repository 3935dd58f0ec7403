#include "transport/flood_guard.h"

#include <utility>

#include "common/check.h"
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
    quiet_windows_ = 0;
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
    quiet_windows_ = refused_ == 0 ? quiet_windows_ + 1 : 0;
    if (since + refused_ < kEnds || quiet_windows_ >= kQuietWindows) {
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
  // Before the rules are read: a key that is added after that is followed.
  filters_.store(true);
  const absl::Status set = SetFilter(ring_.Rules(notices_));
  if (set.ok()) return;
  filters_.store(false);
  static_cast<void>(channel_.SetFilter({}));
  cannot_ = absl::IsUnimplemented(set);
  if (!cannot_ && !std::exchange(failed_, true)) {
    SLOG_WARN("no filter for datagrams: {}", Sv(set.message()));
  }
}

absl::Status FloodGuard::SetFilter(const FloodRules& rules) {
  const absl::Status set = channel_.SetFilter(FloodProgram(rules));
  if (!absl::IsResourceExhausted(set)) return set;
  // The kernel counts the old program until the new one has replaced it, and allows them little
  // memory together (net.core.optmem_max). A short one between them makes room.
  FloodRules any = rules;
  any.any_key = true;
  any.senders.clear();
  SALIUS_RETURN_IF_ERROR(channel_.SetFilter(FloodProgram(any)));
  // Where a long one alone is too much, the short one stays.
  static_cast<void>(channel_.SetFilter(FloodProgram(rules)));
  return absl::OkStatus();
}

void FloodGuard::KeysChanged() {
  if (!filters()) return;
  const int64_t now_ns = clock_.MonotonicNanos();
  absl::MutexLock lock(&mutex_);
  if (filters()) Attach(now_ns);
}

}  // namespace salius
