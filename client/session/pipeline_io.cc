// The pipeline's datagrams: sending what the core asks for, feeding it acknowledgements and time.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/session/pipeline_impl.h"
#include "common/check.h"
#include "common/limits.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/strings.h"
#include "proto/frame.h"

namespace salius {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr size_t kBatch = 16;
constexpr int kMostRounds = 64;  // a flood must not stop time
constexpr size_t kAckBufferBytes = kFrameHeaderBytes + kMaxAckBytes + 64;
// How long the io thread leaves the socket to waiters after it saw one there: long enough that a
// steady synchronous writer never wakes it.
constexpr int64_t kBusyNs = 20'000'000;
constexpr int64_t kShortSleepNs = 1'000'000;
constexpr int64_t kLedSleepNs = 10'000'000;  // while a leader receives
constexpr int64_t kLongSleepNs = 100'000'000;
constexpr int64_t kTendNs = 50'000'000;          // between two rounds of periodic work
constexpr int64_t kKernelLogNs = 5'000'000'000;  // between two looks at the kernel's log

InBatch& ThreadBatch() {
  thread_local InBatch batch(kBatch, kAckBufferBytes);
  return batch;
}

Counter& BadAcks(const char* reason) {
  return GetCounter("salius_bad_acks_total",
                    "Datagrams to the primary that had no effect, by reason", {{"reason", reason}});
}

}  // namespace

void Pipeline::TellEvents(absl::Span<const ReplicatorEvent> events) {
  for (const ReplicatorEvent& event : events) {
    std::string line = options.session_name + ": ";
    if (event.replica >= 0) {
      // Some reasons begin with the replica's name, others do not.
      const std::string name = absl::StrCat("replica ", peers[event.replica].address);
      absl::StrAppend(&line, name, ": ", absl::StrReplaceAll(event.text, {{name + ": ", ""}}));
    } else {
      line += event.text;
    }
    switch (event.level) {
      case ReplicatorEvent::Level::kInfo:
        SLOG_INFO("{}", line);
        break;
      case ReplicatorEvent::Level::kWarning:
        SLOG_WARN("{}", line);
        break;
      case ReplicatorEvent::Level::kError:
        SLOG_ERROR("{}", line);
        break;
    }
  }
  NoteMode();  // no mode changes without an event
}

std::string_view Pipeline::ModeLocked() const {
  // I10: the present truth. Acks count only in mode replicated; on the way to local they no longer
  // do.
  if (!core.failure().ok()) return "failed";
  return ModeName(core.counting_acks() ? Mode::kReplicated : Mode::kLocal);
}

void Pipeline::NoteMode() {
  const std::string_view mode = ModeLocked();
  if (mode == noted_mode) return;
  noted_mode = mode;
  mode_since_ns = clock.MonotonicNanos();
  mode_since_unix_ms = static_cast<uint64_t>(std::max<int64_t>(clock.RealtimeNanos(), 0)) / kMs;
}

void Pipeline::Collect(Work* work) {
  Replicator::Outputs out = core.TakeOutputs();
  if (!out.events.empty()) TellEvents(out.events);
  const size_t begin = work->jobs.size();
  FrameHeader header;
  if (!out.sends.empty() || out.probes != 0) {
    header.volume = config.volume;
    header.epoch = epoch;
    header.session = session;
    header.send_time_ns = static_cast<uint64_t>(clock.MonotonicNanos());
    header.trim_mark = core.checkpoint();
    header.durable_mark = core.durable();
    header.issued_mark = core.sendable();
  }
  for (const Replicator::SendRange& range : out.sends) {
    // The same records to several replicas: one job, packed once.
    const uint8_t bit = static_cast<uint8_t>(1u << range.replica);
    if (range.again) {
      peers[range.replica].path.Resent(static_cast<int64_t>(header.send_time_ns), range.first,
                                       range.last);
    }
    if (!work->jobs.empty() && !range.again && work->jobs.back().first_time &&
        !work->jobs.back().records.empty() &&
        work->jobs.back().records.front()->seq() == range.first &&
        work->jobs.back().records.back()->seq() == range.last) {
      work->jobs.back().targets |= bit;
      continue;
    }
    FrameSender::Job job;
    job.targets = bit;
    job.header = header;
    job.first_time = !range.again;
    job.records.reserve(range.last - range.first + 1);
    for (Seq seq = range.first; seq <= range.last; ++seq) {
      job.records.push_back(RecordAt(seq));
    }
    work->jobs.push_back(std::move(job));
  }
  if (out.probes != 0) {
    FrameSender::Job probe;
    probe.targets = out.probes;
    probe.header = header;
    work->jobs.push_back(std::move(probe));
  }
  ChooseWays(begin, work);
  for (const Replicator::OpenRequest& open : out.opens) {
    peers[open.replica].open_base = open.base;
    session_cv.SignalAll();
  }
  if (out.note) {
    SALIUS_CHECK(!note_wanted.has_value());
    note_wanted = ComposeState(*out.note);
    note_cv.Signal();
  }
  if (out.start_sync) {
    sync_wanted = true;
    sync_cv.Signal();
  }
  if (out.stable_wanted && !stable_wanted) {
    stable_wanted = true;
    stable_cv.Signal();
  }
  if (out.cut) {
    cut_wanted = *out.cut;
    checkpoint_cv.SignalAll();
    const Seq covered = std::min(core.checkpoint(), core.applied());
    while (!records.empty() && records_first <= covered) {
      work->dropped.push_back(std::move(records.front()));
      records.pop_front();
      ++records_first;
    }
  }
  Publish();
  if (out.durable_advanced) {  // or never will be
    if (durable_waiters > 0) durable_cv.SignalAll();
    CollectWaiters(work);
  }
  if (out.window_opened && window_waiters > 0) window_cv.SignalAll();
  if (out.failed && !failure_reported) {
    failure_reported = true;
    failed.store(true, std::memory_order_release);
    work->failure = core.failure();
    WakeCallers();
  }
}

void Pipeline::ChooseWays(size_t begin, Work* work) {
  if (begin == work->jobs.size()) return;
  uint8_t in_group = 0;  // the replicas that each first transmission to the group reaches
  const ReplicaMask connected = core.connected();
  for (size_t i = 0; i < peers.size(); ++i) {
    if ((connected >> i & 1) != 0 && peers[i].path.group()) in_group |= static_cast<uint8_t>(1u << i);
  }
  for (size_t j = begin; j < work->jobs.size(); ++j) {
    FrameSender::Job& job = work->jobs[j];
    const auto now = static_cast<int64_t>(job.header.send_time_ns);
    const bool first = job.first_time && !job.records.empty();
    uint64_t bytes = kFrameHeaderBytes;
    uint8_t wants = 0;
    if (first) {
      for (const RecordRef& record : job.records) bytes += record->header().total_bytes();
      for (size_t i = 0; i < peers.size(); ++i) {
        const auto bit = static_cast<uint8_t>(1u << i);
        if ((job.targets & bit) != 0 && peers[i].path.WantsGroup(now)) wants |= bit;
      }
      // One datagram for all that are in the group, or one for each.
      if (std::popcount(wants) > 1 && (in_group & ~wants) == 0) job.grouped = wants;
    }
    for (size_t i = 0; i < peers.size(); ++i) {
      if ((job.targets >> i & 1) == 0) continue;
      PeerPath& path = peers[i].path;
      job.datagram_bytes[i] = first ? path.Send(now, job.records.front()->seq(),
                                                job.records.back()->seq(), bytes,
                                                (job.grouped >> i & 1) != 0)
                                    : path.datagram_bytes();
    }
  }
}

void Pipeline::CollectWaiters(Work* work) {
  const auto take = [this](std::vector<Waiter>& to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::pop_heap(waiters.begin(), waiters.end(), Later);
    to.push_back(std::move(waiters.back()));
    waiters.pop_back();
  };
  while (!waiters.empty() && waiters.front().seq <= core.durable()) take(work->done);
  const absl::Status why = stopping ? Stopped() : HealthLocked();
  if (waiters.empty() || why.ok()) return;
  work->why = why;
  while (!waiters.empty()) take(work->failed);
}

Pipeline::Wait Pipeline::BecomeLeader() {
  const auto waiting = static_cast<int64_t>(waiters.size()) + durable_waiters;
  waiting_64ths += (waiting * 64 - waiting_64ths) / 8;
  many_wait.store(waiting_64ths > cpus * 64, std::memory_order_relaxed);
  if (leader || !core.counting_acks()) return Wait::kNo;
  leader = leader_seen = true;
  return HowToWait();
}

Pipeline::Wait Pipeline::HowToWait() const {
  if (options.spin_ns == 0 || many_wait.load(std::memory_order_relaxed)) return Wait::kSleep;
  // Measured round trips contain wake-ups that looking spares.
  return core.AnswersNs() <= 2 * options.spin_ns ? Wait::kLookThenSleep : Wait::kSleep;
}

void Pipeline::Lead(Seq mine, Wait wait, Deadline end) {
  while (true) {
    ReceiveSome(wait);
    bool wake_io = false;
    {
      absl::MutexLock lock(&mu);
      bool wanted = mine == 0 ? !waiters.empty() : core.durable() < mine;
      wanted = wanted && !end.Expired(clock);
      if (wanted && core.counting_acks() && !stopping && HealthLocked().ok()) {
        // This thread does not apply: that may wait for the disk, and no other thread receives.
        if (core.applied() + kApplyBurst < core.durable()) applier_cv.Signal();
        wait = HowToWait();
        continue;
      }
      leader = false;
      if (durable_waiters > 0) {
        durable_cv.Signal();
      } else {
        wake_io = !waiters.empty();
      }
    }
    if (wake_io) WakeIo();
    // A waiter with a callback has no thread here that applies its record.
    if (mine == 0 && durable.load() - applied.load() >= kApplyAtLeast) ApplySome(kApplyBurst);
    return;
  }
}

void Pipeline::SendGathered(Seq seq, SendWhen when) {
  if (sendable.load(std::memory_order_acquire) >= seq) return;
  Work work;
  {
    absl::MutexLock lock(&mu);
    if (core.sendable() >= seq || !HealthLocked().ok()) return;
    const int64_t now = clock.MonotonicNanos();
    when == SendWhen::kNow ? core.SendGathered(now) : core.SendSoon(now);
    Collect(&work);
  }
  Perform(work);
}

void Pipeline::WakeIo() {
  const uint64_t one = 1;
  // EAGAIN: the counter is full, so it is awake.
  if (write(io_wake.get(), &one, sizeof(one)) < 0) SALIUS_CHECK(errno == EAGAIN, "eventfd");
}

void Pipeline::WakeCallers() {
  for (MonotonicCond* cv : {&durable_cv, &applied_cv, &window_cv, &checkpoint_cv}) cv->SignalAll();
}

void Pipeline::Publish() {
  issued.store(core.issued(), std::memory_order_release);
  sendable.store(core.sendable(), std::memory_order_release);
  durable.store(core.durable(), std::memory_order_release);
  applied.store(core.applied(), std::memory_order_release);
  checkpoint.store(core.checkpoint(), std::memory_order_release);
}

void Pipeline::Perform(Work& work) {
  for (const FrameSender::Job& job : work.jobs) sender->Send(job);
  for (Waiter& waiter : work.done) std::move(waiter.done)(absl::OkStatus());
  for (Waiter& waiter : work.failed) std::move(waiter.done)(work.why);
  if (!work.failure.ok()) {
    SLOG_ERROR("{}: {}", options.session_name, Sv(work.failure.message()));
    if (options.on_failure) options.on_failure(work.failure);
  }
}

void Pipeline::HandleDatagram(int64_t now, const InDatagram& datagram) {
  static Counter& truncated = BadAcks("truncated");
  static Counter& malformed = BadAcks("malformed");
  static Counter& foreign = BadAcks("foreign");
  static Counter& unknown = BadAcks("unknown_sender");
  if (datagram.truncated) return truncated.Increment();
  const absl::Span<const uint8_t> bytes = datagram.bytes;
  const absl::StatusOr<FrameHeader> header = DecodeFrameHeader(bytes);
  if (!header.ok() || header->type != FrameType::kAck) return malformed.Increment();
  if (header->volume != config.volume || header->epoch != epoch || header->session != session) {
    return foreign.Increment();
  }
  const absl::StatusOr<AckPayload> ack = DecodeAckPayload(bytes.subspan(kFrameHeaderBytes));
  if (!ack.ok()) return malformed.Increment();
  const int index =
      places.Find(both_families ? UnmapFromIpv6(*datagram.from) : *datagram.from);
  if (index < 0) return unknown.Increment();
  const int64_t sent = static_cast<int64_t>(header->send_time_ns);
  const int64_t rtt = sent > 0 && sent <= now ? now - sent : -1;
  core.OnAck(now, index, rtt, *ack);
  if ((ack->flags & (kAckUnknownSession | kAckFenced)) != 0) return;
  PeerPath& path = peers[index].path;
  if (!path.Acked(now, ack->contiguous)) return;
  if (path.datagram_bytes() == path.route_bytes() && !path.group_unheard()) {
    SLOG_INFO("{}: replica {}: large datagrams and the group get through again",
              options.session_name, peers[index].address);
    return;
  }
  SLOG_WARN("{}: replica {}: first transmissions go in datagrams of up to {} bytes (its route: {}){}",
            options.session_name, peers[index].address, path.datagram_bytes(), path.route_bytes(),
            path.group_unheard() ? ", by unicast: the multicast group does not reach it" : "");
}

// Lets time pass for the core only when no datagram is left to read: unread acknowledgements are
// not late. The core then gets the time at which the last look for datagrams began.
void Pipeline::ReceiveSome(Wait wait) {
  InBatch& batch = ThreadBatch();
  absl::StatusOr<size_t> got = size_t{0};
  if (wait == Wait::kLookThenSleep) {
    spinner.Spin([&] {
      got = channel->Receive(batch, /*wait=*/false);
      return !got.ok() || *got > 0;
    });
  }
  int64_t looked = clock.MonotonicNanos();
  if (got.ok() && *got == 0) got = channel->Receive(batch, wait != Wait::kNo);
  for (int round = 1;; ++round) {
    if (wait != Wait::kNo && round == 1 && got.ok() && *got == 0) {
      looked = clock.MonotonicNanos();  // the first receive may have waited for long
      got = channel->Receive(batch, /*wait=*/false);
    }
    const size_t count = got.ok() ? *got : 0;
    bool more = false;
    Work work;
    {
      absl::MutexLock lock(&mu);
      const int64_t now = clock.MonotonicNanos();
      for (size_t i = 0; i < count; ++i) HandleDatagram(now, batch[i]);
      const bool due =
          count == 0 || now >= core.NextTick(now - kShortSleepNs) || now >= core.tick_due();
      more = due && count > 0 && round < kMostRounds;
      if (due && !more) core.Tick(count == 0 ? looked : now);
      Collect(&work);
    }
    Perform(work);
    if (!more) return;
    looked = clock.MonotonicNanos();
    got = channel->Receive(batch, /*wait=*/false);
  }
}

// Receives acknowledgements while no waiter does, and lets time pass for the core. While waiters
// receive (or did a moment ago) it keeps away from the socket, so that an acknowledgement wakes one
// thread only.
//
// It waits in ppoll, which uses the monotonic clock. From time to time it ends calls to replicas that
// take too long: gRPC's timers use the wall clock, so nothing may depend on them.
void Pipeline::IoLoop() {
  int64_t busy_until = 0;
  int64_t tend_at = 0;
  int64_t kernel_log_at = 0;
  Seq applied_before = 0;
  while (true) {
    bool poll_socket = false;
    int64_t wait_ns = 0;
    bool led = false;
    {
      absl::MutexLock lock(&mu);
      if (stopping) return;
      const int64_t now = clock.MonotonicNanos();
      if (leader || std::exchange(leader_seen, false)) busy_until = now + kBusyNs;
      // This thread serves the waiters with callbacks when no other thread receives.
      const bool busy = now < busy_until && (leader || waiters.empty());
      wait_ns = std::clamp<int64_t>(core.NextTick(now) - now, kShortSleepNs / 2, kLongSleepNs);
      if (busy) wait_ns = std::min(wait_ns, leader ? kLedSleepNs : kShortSleepNs);
      poll_socket = channel != nullptr && !busy;
      io_wakes_ns = now + wait_ns;
    }
    pollfd fds[] = {{poll_socket ? channel->fd() : -1, POLLIN, 0}, {io_wake.get(), POLLIN, 0}};
    const timespec limit{0, wait_ns};
    ppoll(fds, std::size(fds), &limit, nullptr);  // an error shows in Receive
    if (fds[1].revents != 0) {
      uint64_t count = 0;
      if (read(io_wake.get(), &count, sizeof(count)) < 0) SALIUS_CHECK(errno == EAGAIN, "eventfd");
    }
    {
      absl::MutexLock lock(&mu);
      const int64_t now = clock.MonotonicNanos();
      led = leader && now < core.NextTick(now - kShortSleepNs) && now < core.tick_due();
    }
    // A datagram that this thread takes away leaves the leader asleep until its receive times out.
    // But when a timer is due the core must first get all datagrams that have arrived.
    if (channel != nullptr && !led) ReceiveSome(Wait::kNo);
    Work work;
    bool tend = false;
    {
      absl::MutexLock lock(&mu);
      const int64_t now = clock.MonotonicNanos();
      if (channel == nullptr) core.Tick(now);
      Collect(&work);
      // Has the records applied that a leader left, unless other threads apply them.
      const bool others = now < busy_until && core.applied() != applied_before;
      if (core.applied() < core.durable() && (!others || applied_waiters > 0)) applier_cv.Signal();
      applied_before = core.applied();
      tend = now >= tend_at;
      if (tend) tend_at = now + kTendNs;
    }
    Perform(work);
    if (tend) {
      for (Peer& peer : peers) peer.control->EndOverdueCalls();
      TendPlaces();
      TendSilence();
      TendControl();
      if (dir.ext4 != nullptr && tend_at >= kernel_log_at) {
        kernel_log_at = tend_at + kKernelLogNs;
        dir.ext4->KeepUp();
      }
    }
  }
}

}  // namespace salius
