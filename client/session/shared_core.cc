#include "client/session/shared_core.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/check.h"
#include "common/host.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/strings.h"

namespace salius {
namespace {

constexpr int64_t kMs = 1'000'000;

SessionTuning Tuning(const StreamOptions& options, ForeignRecords* foreign) {
  SessionTuning tuning;
  tuning.foreign = foreign;
  tuning.cpus = AvailableCpus();
  tuning.few = FewRecords(tuning.cpus);
  tuning.output_triggered = options.output_triggered;
  return tuning;
}

Counter& BadAcks(AckVerdict verdict) {
  return GetCounter("salius_bad_acks_total",
                    "Datagrams to the primary that had no effect, by reason",
                    {{"reason", std::string(AckVerdictName(verdict))}});
}

void CountDatagrams(const Work& work) {
  for (size_t i = 1; i < work.datagrams.size(); ++i) {
    if (work.datagrams[i] != 0) BadAcks(static_cast<AckVerdict>(i)).Increment(work.datagrams[i]);
  }
}

}  // namespace

SharedCore::SharedCore(const StreamOptions& stream_options, Clock& stream_clock,
                       ForeignRecords* foreign)
    : options(stream_options),
      clock(stream_clock),
      core(options.config, Tuning(stream_options, foreign), clock.MonotonicNanos()) {}

void SharedCore::WakeCallers() {
  for (MonotonicCond* cv : {&durable_cv, &applied_cv, &window_cv, &checkpoint_cv}) cv->SignalAll();
}

void SharedCore::WakeThreads() {
  for (absl::CondVar* cv : {&applier_cv, &stable_cv, &sync_cv, &note_cv, &session_cv}) {
    cv->SignalAll();
  }
}

void SharedCore::WakeIo() {
  const uint64_t one = 1;
  // EAGAIN: the counter is full, so it is awake.
  if (write(io_wake.get(), &one, sizeof(one)) < 0) SALIUS_CHECK(errno == EAGAIN, "eventfd");
}

absl::Status SharedCore::Waitable(Seq seq) const {
  SALIUS_CHECK(seq <= core.policy().issued(), "waits for a record that was never issued");
  return core.Waitable();
}

void SharedCore::NoteMode() {
  const std::string_view mode = core.mode();
  if (mode == mode_since.mode) return;
  mode_since.mode = mode;
  mode_since.ns = clock.MonotonicNanos();
  mode_since.unix_ms = static_cast<uint64_t>(std::max<int64_t>(clock.RealtimeNanos(), 0)) / kMs;
}

void SharedCore::LogEvents(absl::Span<const ReplicatorEvent> events) {
  for (const ReplicatorEvent& event : events) {
    std::string line = options.session_name + ": ";
    if (event.replica >= 0) {
      // Some reasons begin with the replica's name, others do not.
      const std::string name = absl::StrCat("replica ", options.config.replicas[event.replica]);
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
}

void SharedCore::LogPath(int replica) {
  const PeerPath& path = core.paths()[replica];
  const std::string& address = options.config.replicas[replica];
  if (path.datagram_bytes() == path.route_bytes() && !path.group_unheard()) {
    SLOG_INFO("{}: replica {}: large datagrams and the group get through again",
              options.session_name, address);
    return;
  }
  SLOG_WARN(
      "{}: replica {}: first transmissions go in datagrams of up to {} bytes (its route: {}){}",
      options.session_name, address, path.datagram_bytes(), path.route_bytes(),
      path.group_unheard() ? ", by unicast: the multicast group does not reach it" : "");
}

void SharedCore::Dispatch(Work& work) {
  if (!work.events.empty()) {
    LogEvents(work.events);
    NoteMode();  // no mode changes without an event
  }
  for (const int replica : work.changed_paths) LogPath(replica);
  for (const Replicator::OpenRequest& open : work.opens) {
    open_wanted[open.replica] = open.base;
    session_cv.SignalAll();
  }
  if (work.note) {
    SALIUS_CHECK(!note_wanted.has_value());
    note_wanted = std::move(work.note);
    note_cv.Signal();
  }
  if (work.start_sync) {
    sync_wanted = true;
    sync_cv.Signal();
  }
  stripes_wanted |= work.pass_stripes;
  if (work.stable_wanted && !stable_wanted) {
    stable_wanted = true;
    stable_cv.Signal();
  }
  if (work.cut) {
    cut_wanted = work.cut;
    checkpoint_cv.SignalAll();
  }
  const Replicator& policy = core.policy();
  mirror.issued.store(policy.issued(), std::memory_order_release);
  mirror.sendable.store(policy.sendable(), std::memory_order_release);
  mirror.durable.store(policy.durable(), std::memory_order_release);
  mirror.applied.store(policy.applied(), std::memory_order_release);
  if (options.gate_page != nullptr) options.gate_page->Store(policy.issued(), policy.durable());
  if (work.durable_advanced && core.waiters().HasFollowers()) durable_cv.SignalAll();
  if (work.window_opened && window_waiters > 0) window_cv.SignalAll();
  if (!work.failure.ok()) {
    mirror.failed.store(true, std::memory_order_release);
    if (options.gate_page != nullptr) options.gate_page->failed.store(1, std::memory_order_release);
    WakeCallers();
  }
}

void SharedCore::Perform(Work& work) {
  for (const SendJob& job : work.jobs) sender->Send(job);
  for (Waiters::Callback& waiter : work.done) std::move(waiter.done)(absl::OkStatus());
  for (Waiters::Callback& waiter : work.failed) std::move(waiter.done)(work.why);
  CountDatagrams(work);
  if (work.failure.ok()) return;
  SLOG_ERROR("{}: {}", options.session_name, Sv(work.failure.message()));
  if (options.on_failure) options.on_failure(work.failure);
}

}  // namespace salius
