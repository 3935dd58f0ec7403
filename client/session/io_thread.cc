#include "client/session/io_thread.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>

#include "common/check.h"

namespace salius {
namespace {

// How long it leaves the channel to waiters after it saw one there: long enough that a steady
// synchronous writer never wakes it.
constexpr int64_t kBusyNs = 20'000'000;
constexpr int64_t kShortSleepNs = 1'000'000;
constexpr int64_t kLedSleepNs = 10'000'000;  // while a leader receives
constexpr int64_t kLongSleepNs = 100'000'000;
constexpr int64_t kRefreshNs = 50'000'000;       // between two rounds of periodic work
constexpr int64_t kKernelLogNs = 5'000'000'000;  // between two looks at the kernel's log

}  // namespace

// While waiters receive (or did a moment ago) this thread keeps away from the channel, so that an
// acknowledgement wakes one thread only.
//
// It waits in ppoll, which uses the monotonic clock. From time to time it ends calls to replicas
// that take too long: gRPC's timers use the wall clock, so nothing may depend on them.
void IoThread::Loop() {
  while (const std::optional<Sleep> sleep = NextSleep()) {
    SleepFor(*sleep);
    // A datagram that this thread takes away leaves the leader asleep until its receive times out.
    // But when a timer is due the core must first get all datagrams that have arrived.
    if (links_.channel() != nullptr && !LeftToLeader()) {
      receiver_.ReceiveSome(AckReceiver::Wait::kNo);
    }
    if (PassTime()) Refresh();
  }
}

std::optional<IoThread::Sleep> IoThread::NextSleep() {
  absl::MutexLock lock(&shared_.mu);
  if (shared_.core.stopping()) return std::nullopt;
  Waiters& waiters = shared_.core.waiters();
  const int64_t now = shared_.clock.MonotonicNanos();
  if (waiters.TakeLeaderSeen()) busy_until_ns_ = now + kBusyNs;
  // This thread serves the waiters with callbacks when no other thread receives.
  const bool led = waiters.HasLeader();
  const bool busy = now < busy_until_ns_ && (led || !waiters.HasCallbacks());
  Sleep sleep;
  sleep.ns = std::clamp<int64_t>(shared_.core.policy().NextTick(now) - now, kShortSleepNs / 2,
                                 kLongSleepNs);
  if (busy) sleep.ns = std::min(sleep.ns, led ? kLedSleepNs : kShortSleepNs);
  sleep.polls_channel = links_.channel() != nullptr && !busy;
  shared_.io_wakes_ns = now + sleep.ns;
  return sleep;
}

void IoThread::SleepFor(const Sleep& sleep) {
  const int wake = shared_.io_wake.get();
  pollfd fds[] = {{sleep.polls_channel ? links_.channel()->fd() : -1, POLLIN, 0},
                  {wake, POLLIN, 0}};
  const timespec limit{0, sleep.ns};
  ppoll(fds, std::size(fds), &limit, nullptr);  // an error shows in Receive
  if (fds[1].revents == 0) return;
  uint64_t count = 0;
  if (read(wake, &count, sizeof(count)) < 0) SALIUS_CHECK(errno == EAGAIN, "eventfd");
}

bool IoThread::LeftToLeader() {
  absl::MutexLock lock(&shared_.mu);
  const Replicator& policy = shared_.core.policy();
  const int64_t now = shared_.clock.MonotonicNanos();
  return shared_.core.waiters().HasLeader() && now < policy.NextTick(now - kShortSleepNs) &&
         now < policy.tick_due();
}

bool IoThread::PassTime() {
  SharedCore::Turn turn(shared_);
  const Replicator& policy = shared_.core.policy();
  const int64_t now = shared_.clock.MonotonicNanos();
  if (links_.channel() == nullptr) turn.Feed(now, input::TimePassed{});
  const bool others = now < busy_until_ns_ && policy.applied() != applied_before_;
  if (policy.applied() < policy.durable() && (!others || shared_.applied_waiters > 0)) {
    shared_.applier_cv.Signal();
  }
  applied_before_ = policy.applied();
  if (policy.AwaitsApplied(now)) {
    shared_.hurry_wanted = true;
    shared_.applier_cv.Signal();
  }
  if (now < refresh_at_ns_) return false;
  refresh_at_ns_ = now + kRefreshNs;
  return true;
}

void IoThread::Refresh() {
  links_.Refresh();
  if (dir_.ext4 != nullptr && refresh_at_ns_ >= kernel_log_at_ns_) {
    kernel_log_at_ns_ = refresh_at_ns_ + kKernelLogNs;
    dir_.ext4->KeepUp();
  }
}

}  // namespace salius
