#include "client/direct/window/waits.h"

#include <algorithm>
#include <climits>

#include "client/direct/window/system.h"

namespace salius::direct {
namespace {

constexpr uint32_t kAllBits = 0xFFFFFFFF;

// A sleeper's bit: a record wakes its own waiters only, as far as 32 bits can tell them apart.
uint32_t BitOf(Seq seq) { return uint32_t{1} << (seq % 32); }

uint32_t BitsOf(Advanced advanced) {
  if (advanced.upto - advanced.from >= 32) return kAllBits;
  uint32_t bits = 0;
  for (Seq seq = advanced.from + 1; seq <= advanced.upto; ++seq) bits |= BitOf(seq);
  return bits;
}

void WakeBits(Header& header, uint32_t bits) {
  header.news.fetch_add(1);
  if (header.sleepers.load() > 0) FutexWake(header.news, INT_MAX, bits);
}

}  // namespace

void SetPhase(const SharedWindow& window, Phase phase) {
  const uint32_t generation = window.phase().generation() + 1;
  window.header().phase.store(PhaseWord::Of(phase, generation).value);
}

void Wake(const SharedWindow& window, Advanced advanced) {
  if (advanced.any()) WakeBits(window.header(), BitsOf(advanced));
}

void WakeAll(const SharedWindow& window) { WakeBits(window.header(), kAllBits); }

uint32_t News(const SharedWindow& window) { return window.header().news.load(); }

void SleepForNews(const SharedWindow& window, uint32_t seen, Seq seq, int64_t timeout_ns) {
  Header& header = window.header();
  // A process that is killed here leaves the count too large: a few wakes are then for none.
  header.sleepers.fetch_add(1);
  FutexWait(header.news, seen, timeout_ns, BitOf(seq));
  header.sleepers.fetch_sub(1);
}

void Kick(const SharedWindow& window, uint32_t trouble) {
  Header& header = window.header();
  const uint32_t before = header.trouble.fetch_or(trouble);
  header.kicks.fetch_add(1);
  if ((before & trouble) == trouble && header.coordinator_sleeps.load() == 0) return;
  FutexWake(header.kicks, 1, kAllBits);
}

void SleepUntilKicked(const SharedWindow& window, int64_t timeout_ns) {
  Header& header = window.header();
  const uint32_t seen = header.kicks.load();
  header.coordinator_sleeps.store(1);
  if (header.trouble.load() == 0) FutexWait(header.kicks, seen, timeout_ns, kAllBits);
  header.coordinator_sleeps.store(0);
}

uint32_t TakeTrouble(const SharedWindow& window) { return window.header().trouble.exchange(0); }

Leadership Leadership::Try(const SharedWindow& window, int64_t now) {
  Header& header = window.header();
  uint64_t leader = header.leader.load();
  const bool silent = leader != 0 && now - header.leader_beat_ns.load() > kTakeOverNs;
  Leadership mine;
  if (leader != 0 && !silent) return mine;
  const uint64_t number = header.next_leader.fetch_add(1);
  header.leader_beat_ns.store(now);
  if (!header.leader.compare_exchange_strong(leader, number)) return mine;
  mine.number_ = number;
  (silent ? header.counters.take_overs : header.counters.leaders)
      .fetch_add(1, std::memory_order_relaxed);
  return mine;
}

bool Leadership::Beat(const SharedWindow& window, int64_t now) {
  if (window.header().leader.load() != number_) {
    number_ = 0;
    return false;
  }
  window.header().leader_beat_ns.store(now);
  return true;
}

void Leadership::Stop(const SharedWindow& window) {
  uint64_t mine = number_;
  number_ = 0;
  Header& header = window.header();
  if (mine == 0 || !header.leader.compare_exchange_strong(mine, 0)) return;
  if (header.sleepers.load() > 0) FutexWake(header.news, 1, kAllBits);
}

}  // namespace salius::direct
