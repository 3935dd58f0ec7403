#include "client/direct/process/acknowledged.h"

#include <algorithm>
#include <cerrno>

#include "client/direct/window/acks.h"
#include "client/direct/window/claim.h"
#include "client/direct/window/robust_lock.h"
#include "client/direct/window/system.h"

namespace salius::direct {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
// A follower looks again after this time, whatever happens to the leader.
constexpr int64_t kSleepNs = kMillisecond;
// After this time the coordinator is asked to look: a datagram may be lost.
constexpr int64_t kPatienceNs = 2 * kMillisecond;
constexpr unsigned kDatagrams = 8;
// A spin helps only on a path that is shorter than waking up takes.
constexpr int64_t kShortRoundTripNs = 100'000;

// Returns the shortest smoothed round trip to a replica, ns; 0: none is known.
int64_t RoundTrip(const SharedWindow& window) {
  int64_t least = 0;
  for (uint32_t i = 0; i < window.header().replicas; ++i) {
    const int64_t rtt = __atomic_load_n(&window.header().heard[i].rtt_ns, __ATOMIC_RELAXED);
    if (rtt > 0 && (least == 0 || rtt < least)) least = rtt;
  }
  return least;
}

}  // namespace

bool Acknowledged::CoordinatorLives() const { return HeldByTheLiving(window_.header().life); }

void Acknowledged::SendReady() const {
  const Seq sent = window_.header().sent.load();
  if (sent >= window_.window().issued()) return;
  const int64_t now = MonotonicNs();
  Claimed claimed;
  {
    WindowLock lock(window_);
    claimed = Claim(window_, now);
  }
  SendClaimed(window_, socket_, claimed, now);
}

int Acknowledged::Receive(bool wait) const {
  struct Room {
    sockaddr_in6 from;
    iovec part;
    uint8_t bytes[kAckDatagramBytes];
  };
  Room rooms[kDatagrams];
  mmsghdr messages[kDatagrams] = {};
  for (unsigned i = 0; i < kDatagrams; ++i) {
    rooms[i].part = {rooms[i].bytes, sizeof(rooms[i].bytes)};
    messages[i].msg_hdr.msg_name = &rooms[i].from;
    messages[i].msg_hdr.msg_namelen = sizeof(rooms[i].from);
    messages[i].msg_hdr.msg_iov = &rooms[i].part;
    messages[i].msg_hdr.msg_iovlen = 1;
  }
  const int count =
      RawRecvmmsg(socket_, messages, kDatagrams, wait ? MSG_WAITFORONE : MSG_DONTWAIT);
  if (count == -EBADF || count == -ENOTSOCK) {
    // The program has closed our descriptor. The coordinator receives for this process.
    if (wait) SleepForNews(window_, News(window_), 0, kSleepNs);
  }
  const int64_t now = MonotonicNs();
  Advanced all;
  for (int i = 0; i < count; ++i) {
    Advanced advanced;
    const auto* from = reinterpret_cast<const sockaddr*>(&rooms[i].from);
    TakeDatagram(window_, rooms[i].bytes, messages[i].msg_len, from, now, &advanced);
    if (!advanced.any()) continue;
    all.from = all.any() ? std::min(all.from, advanced.from) : advanced.from;
    all.upto = std::max(all.upto, advanced.upto);
  }
  if (all.any()) SendReady();  // the records gathered meanwhile
  Wake(window_, all);
  return std::max(count, 0);
}

void Acknowledged::SpinOrReceive() const {
  // With more callers than CPUs a spin takes the CPU from a replica or another caller.
  const bool few = window_.header().sleepers.load(std::memory_order_relaxed) < cpus_;
  const int64_t rtt = cpus_ > 1 && few ? RoundTrip(window_) : 0;
  if (rtt > 0 && rtt < kShortRoundTripNs) {
    const int64_t until = MonotonicNs() + 2 * rtt;
    do {
      if (Receive(false) > 0) return;
    } while (MonotonicNs() < until);
  }
  Receive(true);
}

Waited Acknowledged::Wait(Seq seq, PhaseWord phase) const {
  const int64_t begun = MonotonicNs();
  int64_t kick_at = begun + kPatienceNs;
  Leadership leadership;
  Waited result = Waited::kDurable;
  for (;;) {
    const uint32_t news = News(window_);
    if (window_.durable() >= seq) break;
    if (!(window_.phase() == phase)) {
      result = Waited::kChanged;
      break;
    }
    if (!CoordinatorLives()) {
      result = Waited::kDead;
      break;
    }
    SendReady();
    const int64_t now = MonotonicNs();
    if (now >= kick_at) {
      Kick(window_, kTroubleWaiting);
      kick_at = now + 4 * kPatienceNs;
    }
    if (!leadership.leading()) leadership = Leadership::Try(window_, now);
    if (leadership.leading() && leadership.Beat(window_, now)) {
      SpinOrReceive();
    } else {
      SleepForNews(window_, news, seq, kSleepNs);
    }
  }
  leadership.Stop(window_);
  return result == Waited::kDurable && !CoordinatorLives() ? Waited::kDead : result;
}

bool Acknowledged::WaitForNews(PhaseWord phase, bool (*done)(const SharedWindow&, uint64_t),
                               uint64_t what) const {
  int64_t sleep = kSleepNs;
  for (;;) {
    const uint32_t news = News(window_);
    if (!(window_.phase() == phase) || done(window_, what)) return true;
    if (!CoordinatorLives()) return false;
    SleepForNews(window_, news, 0, sleep);
    sleep = std::min(2 * sleep, 16 * kSleepNs);
  }
}

}  // namespace salius::direct
