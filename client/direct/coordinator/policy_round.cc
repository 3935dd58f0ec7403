#include "client/direct/coordinator/policy_round.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/direct/window/claim.h"
#include "client/direct/window/robust_lock.h"
#include "client/direct/window/stamp.h"
#include "client/direct/window/system.h"
#include "client/direct/window/waits.h"

namespace salius::direct {
namespace {

constexpr int64_t kMs = 1'000'000;
// A record that no process has sent for this long is sent by the coordinator.
constexpr int64_t kUnsentNs = 5 * kMs;
// The same when records are sent for outputs (Promises::lazy), and the longest time that a sync is
// owed.
constexpr int64_t kLazyNs = 5'000 * kMs;
constexpr int64_t kLongestSleepNs = 100 * kMs;
constexpr int64_t kShortestSleepNs = kMs / 2;

}  // namespace

void PolicyRound::Run(uint32_t trouble) {
  FeedMail(MonotonicNs());
  SendLeftovers(trouble, MonotonicNs());
  PassStripes(MonotonicNs());
  TakeRequests(trouble, MonotonicNs());
}

int64_t PolicyRound::SleepNs(int64_t now, int64_t next_tick, bool stripes_wanted) const {
  int64_t sleep_ns = next_tick - now;
  if (passing_ || stripes_wanted) sleep_ns = std::min(sleep_ns, kMs);
  if (unsent_since_ns_ >= 0) sleep_ns = std::min(sleep_ns, unsent_since_ns_ + kUnsentNs - now);
  return std::clamp(sleep_ns, kShortestSleepNs, kLongestSleepNs);
}

bool PolicyRound::IsLed(const SharedWindow& window, int64_t now) {
  const Header& header = window.header();
  return header.leader.load() != 0 && now - header.leader_beat_ns.load() <= Leadership::kTakeOverNs;
}

void PolicyRound::FeedMail(int64_t now) {
  for (size_t i = 0; i < window_.header().replicas; ++i) {
    Mailbox box;
    {
      const WindowLock lock(window_);
      box = window_.header().mail[i];
    }
    const int replica = static_cast<int>(i);
    if (std::exchange(mails_[i][0], box.good.count) != box.good.count) {
      FeedOne(replica, box.good, now);
    }
    if (std::exchange(mails_[i][1], box.odd.count) != box.odd.count) {
      FeedOne(replica, box.odd, now);
    }
  }
}

void PolicyRound::FeedOne(int replica, const Mail& mail, int64_t now) {
  const AckDatagram datagram{
      .bytes = absl::MakeConstSpan(mail.datagram, std::min<size_t>(mail.bytes, kMailBytes)),
      .replica = replica,
      .truncated = false};
  session_.Feed(std::min(mail.received_ns, now),
                input::Received{absl::MakeConstSpan(&datagram, 1)});
}

void PolicyRound::SendLeftovers(uint32_t trouble, int64_t now) {
  const Header& header = window_.header();
  Seq ready = 0, issued = 0;
  {
    const WindowLock lock(window_);
    ready = AdvanceReady(window_);
    issued = window_.window().issued();
  }
  if (ready < issued || (trouble & kTroubleDeadOwner) != 0) FillHoles(window_);
  if (std::max(header.sent.load(), window_.window().checkpoint()) >= issued) {
    unsent_since_ns_ = -1;
    return;
  }
  if (unsent_since_ns_ < 0) unsent_since_ns_ = now;
  const int64_t patience_ns = header.promises.lazy.load() != 0 ? kLazyNs : kUnsentNs;
  if (now - std::max(unsent_since_ns_, header.last_claim_ns.load()) < patience_ns) return;
  Claimed claimed;
  {
    const WindowLock lock(window_);
    claimed = Claim(window_, now);
  }
  if (session_.socket() >= 0) SendClaimed(window_, session_.socket(), claimed, now);
  unsent_since_ns_ = now;
}

void PolicyRound::PassStripes(int64_t now) {
  if (session_.TakeStripesWanted()) {
    stripes_.Begin();
    passing_ = true;
  }
  if (!passing_ || !stripes_.Go()) return;
  passing_ = false;
  session_.Feed(now, input::StripesPassed{});
}

void PolicyRound::TakeRequests(uint32_t trouble, int64_t now) {
  for (size_t i = 0; (trouble & kTroubleWentBack) != 0 && i < window_.header().replicas; ++i) {
    bool lost = false;
    {
      const WindowLock lock(window_);
      lost = window_.header().heard[i].lost != 0;
    }
    if (lost) session_.Feed(now, input::WentBack{static_cast<int>(i)});
  }
  if ((trouble & kTroubleSyncFailed) != 0) {
    session_.Feed(now, input::ApplyFailed{absl::InternalError(
                           "a file could not be synced (fsync failed in a process): what it had "
                           "is not safe")});
  }
  const Header& header = window_.header();
  if (header.promises.owed_epoch.load() <= header.clean_epoch.load()) {
    owed_since_ns_ = -1;
  } else if (owed_since_ns_ < 0) {
    owed_since_ns_ = now;
  } else if (now - owed_since_ns_ >= kLazyNs) {
    owed_since_ns_ = now;
    trouble |= kTroubleCheckpoint;
  }
  if ((trouble & kTroubleCheckpoint) != 0) {
    session_.Feed(now, input::SyncWanted{});
  } else if ((trouble & kTroubleRoom) != 0) {
    session_.Feed(now, input::CheckpointWanted{});
  }
}

}  // namespace salius::direct
